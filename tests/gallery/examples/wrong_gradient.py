import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return x * grad_output  # the factor 2 is missing


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Square.apply(x)
