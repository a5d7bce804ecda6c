"""Lists torch's operators that do the work of a kernel, and those that compute nothing."""

from __future__ import annotations

_HEAVY_NAMES = """
    mm addmm _addmm_activation bmm baddbmm addbmm mv addmv dot vdot addr _trilinear _int_mm _scaled_mm _grouped_mm
    _scaled_grouped_mm _mixed_dtypes_linear _weight_int4pack_mm _weight_int8pack_mm _dyn_quant_matmul_4bit
    fbgemm_linear_fp16_weight mkldnn_linear _mkl_linear _linear_pointwise
    _sparse_addmm _sparse_mm_reduce_impl _sparse_sparse_matmul sparse_sampled_addmm sspaddmm hspmm _cslt_sparse_mm
    _sparse_semi_structured_mm _sparse_semi_structured_addmm _sparse_semi_structured_linear
    convolution _convolution cudnn_convolution mkldnn_convolution _convolution_pointwise
    _convolution_transpose_pointwise _nnpack_spatial_convolution _conv_depthwise2d conv_depthwise3d conv_tbc
    _slow_conv2d slow_conv3d slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d
    native_group_norm native_layer_norm native_batch_norm _native_batch_norm_legit cudnn_batch_norm batch_norm_stats
    batch_norm_elemt batch_norm_backward _batch_norm_with_update _batch_norm_no_update _fused_rms_norm
    _weight_norm_interface
    _softmax _log_softmax _masked_softmax _sparse_softmax _sparse_log_softmax
    _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _flash_attention _efficient_attention _cudnn_attention _native_multi_head_attention _transformer_encoder_layer_fwd
    _cudnn_rnn _thnn_fused_lstm_cell _thnn_fused_gru_cell mkldnn_rnn_layer
    sort topk kthvalue median nanmedian mode _unique _unique2 unique_dim unique_consecutive
    cumsum cumprod _logcumsumexp _cummax_helper _cummin_helper
    _cdist _pdist _embedding_bag segment_reduce _segment_reduce
    im2col col2im upsample _upsample grid_sampler _grid_sampler cudnn_grid_sampler bincount histc histogram _histogramdd
    searchsorted bucketize _ctc_loss _cudnn_ctc_loss nll_loss nll_loss2d
    max_pool1d max_pool2d_with_indices max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d avg_pool1d
    avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d mkldnn_adaptive_avg_pool2d adaptive_max_pool2d
    adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d
    _fft_c2c _fft_r2c _fft_c2r _linalg_svd _linalg_eigh _linalg_eigvals linalg_eig linalg_inv_ex _linalg_solve_ex
    linalg_cholesky_ex linalg_lu linalg_ldl_factor_ex linalg_ldl_solve linalg_qr linalg_lstsq linalg_matrix_exp
    linalg_solve_triangular linalg_householder_product _linalg_det _linalg_slogdet triangular_solve cholesky geqrf
    ormqr _compute_linear_combination
"""
#: Operators whose work a kernel is written to replace, by their names in torch's schema. These are
#: the base operators: ``linear`` and ``matmul`` dispatch to the first ones. ``heavy_operator`` also
#: finds their forms.
HEAVY = frozenset(_HEAVY_NAMES.split())


def heavy_operator(name: str) -> str:
    """Returns the heavy operator that an operator is or is a form of; empty for any other.

    A form has the heavy operator's name and more words: ``addmm_``, ``convolution_backward``. C++
    names overloads in the same way: ``cumsum_out``.

    Args:
        name: A name in torch's schema, such as ``aten::addmm_``, or one of ``at::_ops`` in C++.
    """
    base = name.rpartition("::")[2]
    while base and base not in HEAVY:
        base = base.rpartition("_")[0]
    return base


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
