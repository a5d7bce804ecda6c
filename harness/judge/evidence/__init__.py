"""What a candidate ran: its kernels, the operators of torch that it called, whose work its result is."""
