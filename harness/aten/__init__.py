"""What the harness knows of torch's operators (ATen) and their dispatcher."""
