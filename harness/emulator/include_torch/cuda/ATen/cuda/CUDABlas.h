#pragma once
#error cuemu-unsupported: cuBLAS: write the product as a kernel, or call torch.matmul in Python
