"""Lists torch's operators that do the work of a kernel, and those that compute nothing."""

from __future__ import annotations

#: Operators whose work a kernel is written to replace, by their names in torch's schema. These are
#: the base operators: ``linear`` and ``matmul`` dispatch to the first ones.
HEAVY = frozenset(
    (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "addr", "_scaled_mm", "_grouped_mm"),
        *("convolution", "convolution_backward", "_convolution", "convolution_overrideable"),
        *("native_group_norm", "native_group_norm_backward", "native_layer_norm", "native_layer_norm_backward"),
        *("native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit", "cudnn_batch_norm"),
        *("cudnn_batch_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"),
        *("_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"),
        *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward"),
        *("_cudnn_rnn", "_cudnn_rnn_backward", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "mkldnn_rnn_layer"),
        *("sort", "topk", "cumsum", "cumprod", "_cdist_forward", "_cdist_backward", "_embedding_bag"),
        *("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "max_pool3d_with_indices"),
        *("avg_pool2d", "avg_pool2d_backward", "avg_pool3d", "avg_pool3d_backward"),
        *("_fft_c2c", "_fft_r2c", "_fft_c2r", "_linalg_svd", "_linalg_eigh", "linalg_inv_ex", "_linalg_solve_ex"),
    )
)

#: Operators that create, copy, fill, view or describe memory, and compute nothing.
IDLE = frozenset(
    (
        *(
            "empty",
            "empty_like",
            "empty_strided",
            "empty_permuted",
            "new_empty",
            "new_empty_strided",
            "empty_quantized",
        ),
        *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"),
        *("zero_", "fill_", "_efficientzerotensor", "scalar_tensor", "lift", "lift_fresh", "lift_fresh_copy"),
        *("copy_", "copy", "_copy_from", "clone", "contiguous", "to", "_to_copy", "_to_dense", "pin_memory", "flip"),
        *("cat", "stack", "constant_pad_nd", "pad", "repeat", "roll", "narrow_copy", "as_strided_copy"),
        *(
            "alias",
            "resolve_conj",
            "resolve_neg",
            "conj",
            "_conj",
            "view",
            "_unsafe_view",
            "_reshape_alias",
            "reshape",
            "view_as",
            "reshape_as",
            "flatten",
            "unflatten",
        ),
        *(
            "as_strided",
            "as_strided_",
            "expand",
            "expand_as",
            "permute",
            "transpose",
            "transpose_",
            "t",
            "t_",
            "numpy_T",
        ),
        *(
            "movedim",
            "select",
            "slice",
            "narrow",
            "split",
            "split_with_sizes",
            "chunk",
            "unbind",
            "squeeze",
            "squeeze_",
        ),
        *("unsqueeze", "unsqueeze_", "diagonal", "unfold", "detach", "detach_", "resize_", "resize_as_", "set_"),
        *(
            "select_backward",
            "slice_backward",
            "view_as_real",
            "view_as_complex",
            "broadcast_tensors",
            "requires_grad_",
        ),
        *("item", "_local_scalar_dense", "is_nonzero", "result_type", "can_cast", "is_pinned", "record_stream"),
        *("size", "stride", "numel", "sym_size", "sym_stride", "sym_numel", "is_floating_point", "is_complex"),
        *("_has_compatible_shallow_copy_type", "_version", "output_nr", "is_leaf", "data", "set_data", "retain_grad"),
        *("_nested_tensor_size", "_backward", "is_same_size", "arange", "promote_types", "_assert_async", "dropout"),
    )
)
