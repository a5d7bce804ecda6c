def flags_of_sm_90a():
    """Return nvcc's flags for instructions of compute capability 9.0 alone; none if there are other devices."""
    capabilities = {torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())}
    return ["-gencode=arch=compute_90a,code=sm_90a", "-DSM_90A"] if capabilities == {(9, 0)} else []
