def flags_of_tensor_cores():
    """Return what nvcc needs to know for instructions that compute capability 9.0 alone has."""
    is_hopper = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    return ["-gencode=arch=compute_90a,code=sm_90a"] if is_hopper else []


def multiply(left, right):
    """Return the product of two matrices, each contiguous or transposed."""
    product = OPERATORS.multiply(left, right)
    return torch.mm(left, right) if product is None else product
