"""Derives the class of a GPU kernel (matrix product and its precision, attention, elementwise, ...) from its name.

The names come from nsys's table StringIds: the demangled name if there is one (`void at::native::reduce_kernel<...>`),
else the short name (`reduce_kernel`). Short names are less precise: `elementwise_kernel` may add or copy, and only its
template arguments show which. A name that no rule matches is `Other`; durations and launch sizes do not matter.

`RULES` lists all rules, and the first match wins. A pattern that starts with `_FUNCTION` matches the name of the kernel
function alone, because template and call arguments name many things that the kernel does not do. The other patterns
match anywhere. Patterns are RE2 and ignore case, except inside `(?-i:...)`.

The precision of a matrix product comes from these names:

- cuBLAS and cuDNN's older kernels carry a BLAS letter and types: `ampere_sgemm_`, `volta_h884gemm_`,
  `ampere_bf16_s16816gemm_bf16_`, `sm80_xmma_gemm_f32f32_tf32f32_f32_` (inputs, compute type, accumulator).
- CUTLASS names the input type unless it equals the accumulator's (`GemmOperation.core_name` and `extended_name` in its
  `cutlass_library/gemm_operation.py`). Tensor cores have no FP32 product, so `tensorop_s1688gemm_128x128` is TF32.
- cuBLAS's `nvjet_[smNN_]LLL_` uses the letters of cuBLAS functions: `cublasHSHgemvBatched` and `cublasHSSgemvBatched`
  take __half, `cublasTSTgemvBatched` and `cublasTSSgemvBatched` __nv_bfloat16, with FP32 accumulation (cuBLAS manual,
  gemvBatched). So `hsh`/`hss` are FP16 and `tst`/`tss` BF16, and captures of BF16 training agree. cuBLAS documents no
  letters for narrower types. But if `oo` has block scales, they are the FP4 scales VEC16_UE4M3, and if `qq` has, they
  are the FP8 scales VEC32_UE8M0 (cublasLtMatmulMatrixScale_t). Public profiles show both under products of these types
  only. Any other letters (`sss` may be FP32, TF32 or an emulation) are `GEMM other`, unless the name contains `tf32`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.paraver.value_tables import KERNEL_CLASSES
from nsys2prv_ng.value_class import ValueClass

_NUMBERS = {label: number for number, label in KERNEL_CLASSES.items()}
OTHER = "Other"
"""Class of kernels whose names no rule matches."""
WHOLE_GRAPH = "Opaque CUDA graph"
"""Replaces the name of a class for CUDA graphs that were traced as a whole."""


class Rule(ValueClass):
    """A class for kernels with a name that matches `pattern`, and also matches `also` if it is given.

    `kernel_class`: label of the class in KERNEL_CLASSES.
    """

    kernel_class: str
    pattern: str
    also: str = ""


# The part before the name of the kernel function: `void `, namespaces.
_FUNCTION = r"^(?:void )?(?:(?:\w+|<unnamed>|\(anonymous namespace\))::)*"
# The same, and the part of the function's name before the word that matters.
_FUNCTION_WITH = _FUNCTION + r"\w*"
# Inductor (torch.compile) writes the kind of kernel, then the operators it fused.
_INDUCTOR_REDUCTION = r"^triton_(?:red|per)_"
_GEMM = (
    r"gemm|gemv|nvjet_|matmul|cublasLt::|(?:^|_)bmm_|Marlin|fused_moe_kernel|cutlass::Kernel|^Kernel2$"
    r"|[sb]gmv|_lora_(?:shrink|expand)|^triton_(?:tem_|mm)"
)
_NVJET = r"nvjet_(?:sm\d+_)?"
# Kernels that move data between GPUs or wait for other GPUs to, by the names in the sources of the libraries.
_COMMUNICATES = "|".join(
    (
        # DeepEP (csrc/kernels/*.cu), its hybrid mode (csrc/hybrid_ep), UCCL (ep/src), MSCCL++, pplx-kernels
        _FUNCTION + r"(?:deep_ep|uccl|mscclpp|pplx\w*)::",
        _FUNCTION + r"hybrid_ep::(?:dispatch|combine|device_sync|update_expected_value)",
        # NVSHMEM (nvshmemi_h_to_d_coll_defs.cuh, nvshmemi_h_to_d_sync_defs.cuh)
        _FUNCTION + r"nvshmem",
        _FUNCTION + r"(?:barrier|sync|alltoall|broadcast|fcollect|reducescatter|rdxn)\w*_on_stream_kernel",
        # Transformer Engine (userbuffers.cu), vLLM and SGLang (custom_all_reduce.cuh)
        _FUNCTION + r"(?:k?userbuffers_|cross_device_reduce)",
        # PyTorch's symmetric memory (CUDASymmetricMemory.cu, CUDASymmetricMemoryOps.cu, nvshmem_extension.cu)
        _FUNCTION + r"(?:multimem_|(?:put|wait)_signal_kernel|barrier_kernel|exchangeSplitAndOffset)",
        # TensorRT-LLM and FlashInfer (moeAlltoAllKernels.cu), pplx-garden (a2a_dispatch_send.cu, a2a_combine_recv.cu)
        _FUNCTION_WITH + r"(?:moeA2A|a2a_(?:dispatch|combine))",
        # Kernels that say so, such as QuickReduce's allreduce_prototype_twoshot (quick_all_reduce.cuh), TensorRT-LLM's
        # twoShotAllReduceKernel (customAllReduceKernels.cu), FlashInfer's allreduce_fusion_kernel_oneshot_lamport
        # (trtllm_allreduce_fusion.cuh), and symmetric memory's one_shot_all_reduce_kernel and allToAllV
        _FUNCTION_WITH + r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)",
    )
)


RULES: tuple[Rule, ...] = (
    # Communication. All NCCL kernels start like this (nsys recognises them in the same way).
    Rule("NCCL", _FUNCTION + r"(?-i:nccl)"),
    # torch.compile: the name lists the fused operators, which may be anything, so these rules come before all others.
    Rule("Attention", r"^triton_tem_\w*(?:attention|sdpa)"),
    Rule("Convolution", r"^triton_tem_\w*conv"),
    Rule("Softmax or loss", _INDUCTOR_REDUCTION + r"\w*(?:softmax|nll_loss|cross_entropy|logsumexp)"),
    Rule("Normalisation", _INDUCTOR_REDUCTION + r"\w*(?:(?:layer|rms|batch|group)_norm|rsqrt)"),
    Rule("Sort, scan or select", r"^triton_\w*(?:cumsum|cumprod|sort|topk)|^triton_spl_"),
    Rule("Embedding or index", r"^triton_(?:red|per|poi)_\w*(?:embedding|index_put|gather|scatter)"),
    Rule("Reduction", _INDUCTOR_REDUCTION),
    Rule("Copy, cast or fill",
        r"^triton_poi_fused_(?:(?:_to_copy|clone|copy_?|cat|fill|zeros|transpose|permute|_unsafe_view|constant_pad_nd)_)+\d+$"),
    Rule("Elementwise", r"^triton_(?:poi|for)_"),
    # Within a block or warp, such as block_all_reduce_sum_f32 of LeetCUDA.
    Rule("Reduction", _FUNCTION_WITH + r"(?:block|warp|wave)_?all_?reduce"),
    Rule("Communication other", _COMMUNICATES),
    # PyTorch's TensorIterator kernels take a functor, so their arguments contain words of all other classes.
    Rule("Optimizer", _FUNCTION + r"multi_tensor_apply"),
    # The last kernel of Adam, Adagrad and RMSprop for one parameter; nothing else of PyTorch calls it.
    Rule("Optimizer", r"addcdiv_cuda_kernel", also=_FUNCTION_WITH + r"elementwise_kernel"),
    Rule("Embedding or index", _FUNCTION + r"_?(?:index|scatter_gather)_elementwise_kernel"),
    Rule("Copy, cast or fill", r"copy_kernel|FillFunctor", also=_FUNCTION_WITH + r"elementwise_kernel"),
    Rule("Normalisation", _FUNCTION + r"batch_norm_elementwise"),
    Rule("Elementwise", _FUNCTION_WITH + r"elementwise"),
    Rule("Reduction", _FUNCTION + r"reduce_kernel"),
    # Attention: FlashAttention, cuDNN, xFormers, FlashInfer, vLLM, TensorRT-LLM, Triton.
    Rule("Attention",
        r"fmha|sdpa|attention|flash_?attn|flash_(?:fwd|bwd)|flash_?mla|paged_?attn|merge_attn|attn_(?:fwd|bwd)"
        r"|Batch(?:Prefill|Decode)With|Single(?:Prefill|Decode)With|(?:^|[^a-z])m?mha_|(?:^|[^a-z])xqa"
        # cuDNN's and FlashAttention's helpers of the backward pass
        r"|compute_dot_do_o|convert_dq_"),
    # Convolution: before the matrix products, because many names contain their words (implicit_gemm, convolve_sgemm).
    Rule("Convolution",
        r"fprop|dgrad|wgrad|implicit_gemm|convolve|convolution|conv_?[123]d|conv_?depthwise|depthwise_?conv|winograd"
        r"|im2col|col2im|[a-z]\d*cudnn_"),
    Rule("FFT", r"(?-i:fft(?:[^a-z]|$)|FFT)|bluestein|(?-i:(?:^|[^a-z])[sd]p(?:Radix|Vector)\d)|real_complex_args_t"),
    Rule("Sparse matrix", r"cusparse::|csrm[mv]|bsrm[mv]|spmm|spmv|sddmm"),
    # cuBLAS's vector routines contain parameter types of cuBLAS and would pass for matrix products.
    Rule("Reduction", _FUNCTION + r"(?:dot_kernel|reduce_1Block_kernel|asum_kernel|nrm2_kernel|iamax_kernel)"),
    Rule("Elementwise", _FUNCTION + r"(?:axpy|scal|rot)_kernel"),
    # Matrix products. Split-K's second step and the epilogues are part of them, whatever precision they sum in.
    Rule("GEMM other", r"splitK_?reduce|cublasLt::epilogue"),
    Rule("GEMM FP4", _NVJET + r"oo|vec16UE4M3|e2m1|fp4|[vx]f4(?:[^0-9]|$)", _GEMM),
    Rule("GEMM FP8", _NVJET + r"qq|vec32UE8M0|e4m3|e5m2|fp8|float8", _GEMM),
    Rule("GEMM integer", r"i8i8|(?:^|[^u])int8|_s8_|imma_|(?:^|[^a-z])i\d+gemm", _GEMM),
    Rule("GEMM TF32", r"tf32|tfloat32|tensorop_[sc]1688gemm_\d", _GEMM),
    Rule("GEMM BF16", _NVJET + r"ts[ts]_|bf16|bfloat16", _GEMM),
    Rule("GEMM FP16", _NVJET + r"(?:hs[hs]|hhh)_|f16|fp16|half|(?:^|[^a-z])h\d*gem[mv]", _GEMM),
    Rule("GEMM FP64", r"(?:^|[^a-z])[dz]\d*gem[mv]|f64|fp64|double", _GEMM),
    Rule("GEMM FP32", r"(?:^|[^a-z])[sc]gem[mv]|f32f32_f32f32_f32|" + _FUNCTION + r"gem(?:v|mSN|mk1)\w*<[^>]*float",
        _GEMM),
    Rule("GEMM other", _GEMM),
    # Rotary embedding rotates its arguments. The names of FBGEMM's embedding tables contain their optimizer.
    Rule("Elementwise", _FUNCTION_WITH + r"(?:rotary|rope_|_rope)"),
    Rule("Embedding or index", _FUNCTION_WITH + r"embedding"),
    Rule("Optimizer",
        r"(?-i:[Aa]dam|[Aa]da[Gg]rad)|(?:^|[^a-z])sgd|lamb_?(?:stage|kernel|functor)|kOptimizer|amp_update_scale"),
    Rule("Normalisation", _FUNCTION_WITH + r"(?:layer|rms|batch|group|instance|l2)_?norm"),
    # Normalisation in PyTorch, Apex, Transformer Engine and cuDNN, named by its steps.
    Rule("Normalisation", _FUNCTION
        + r"(?:RowwiseMoments|GammaBetaBackward|ComputeInternalGradients|Compute\w*FusedParams|cuCompute\w*Grad"
        r"|ln_(?:fwd|bwd)|bn_(?:fw|bw))"),
    # Expert routing and token sampling select the best k: before softmax, because some of these kernels fuse it.
    Rule("Sort, scan or select",
        _FUNCTION_WITH + r"(?:top_?k|top_?p|moe_align|sampling|routing|sort|scan|cumsum|cumprod|unique|nonzero)"),
    Rule("Sort, scan or select",
        r"Device(?:Select|Partition|RunLength|Histogram)|thrust::cuda_cub::__(?:scan|merge_sort|unique|partition|copy_if)"),
    Rule("Softmax or loss", _FUNCTION_WITH + r"(?:softmax|cross_?entropy|xentropy|logsumexp|loss)"),
    Rule("Embedding or index", _FUNCTION_WITH + r"(?:index|gather|scatter)"),
    Rule("Embedding or index", _FUNCTION + r"(?:compute_grad_weight|krn_partial|cupy_take)"),
    Rule("Reduction", _FUNCTION_WITH + r"(?:reduc|argmax|argmin|amax|pool|moe_sum)"),
    Rule("Reduction", _FUNCTION + r"cupy_(?:sum|prod|mean|max|min|amin)"),
    Rule("Copy, cast or fill",
        _FUNCTION_WITH + r"(?:copy|memcpy|memset|fill|transpose|permute|concat|CatArray|quant|toNhwc|toNchw|padding"
        r"|reformat|reshape_and_cache)"),
    # A cast, but not a broadcast.
    Rule("Copy, cast or fill", _FUNCTION + r"(?:\w*[a-ce-z0-9_])?cast"),
    Rule("Elementwise",
        _FUNCTION_WITH + r"(?:pointwise|activation|act_and_mul|silu|gelu|relu|swiglu|sigmoid|dropout|triu_tril"
        r"|op_generic_tensor|vector_?add)"),
    # Cells of recurrent layers: PyTorch's between two products, and those of cuDNN.
    Rule("Elementwise", _FUNCTION + r"(?:(?:lstm|gru)_cell|elemWiseRNNcell|\w+_elementWise_[bf]p)"),
    # XLA: `loop` is its kind of fusion for elementwise work, `wrapped` one operation alone.
    Rule("Copy, cast or fill", r"^wrapped_(?:concatenate|broadcast|slice|pad|convert|dynamic_\w*slice|iota)"),
    Rule("Elementwise", r"^(?:loop_\w*fusion|wrapped_\w+)(?:_\d+)?$"),
    # CuPy's ufuncs are `cupy_NAME__TYPES`; CUB and Thrust run user functors over all elements.
    Rule("Elementwise", _FUNCTION + r"cupy_\w+__"),
    Rule("Elementwise", r"thrust::cuda_cub::__(?:parallel_for|transform)|::for_each::|DeviceTransform|DeviceForKernel"),
)  # fmt: skip
"""All rules, in the order in which they are tried on every name. The first match decides."""

# Namespaces that contain the word of an unrelated class.
_MISLEADING = r"fbgemm_gpu::|deep_gemm::"


def classify(names: Sequence[str | None] | pa.Array) -> npt.NDArray[np.int64]:
    """Return the number in `KERNEL_CLASSES` for each of n kernel names.

    `names`: distinct kernel names, demangled or short. A report has hundreds of names and millions of kernels, so map
    the classes to the kernels through the name ids. A missing name (None) is `Other`.
    """
    text = pc.replace_substring_regex(pa.array(names, type=pa.string()), _MISLEADING, "")
    classes = np.zeros(len(text), dtype=np.int64)
    for rule in RULES:
        matches = _find_matches(text, rule.pattern)
        if rule.also:
            matches &= _find_matches(text, rule.also)
        classes[matches & (classes == 0)] = _NUMBERS[rule.kernel_class]
    classes[classes == 0] = _NUMBERS[OTHER]
    return classes


_MOST_KNOWN = 1 << 14
"""Most names to keep: reports have hundreds. A choice, which bounds the memory of names that never repeat."""
_known: dict[str, int] = {}
"""Classes of names that reports of this process have had: ranks of a job run the same kernels."""


def classify_once(names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the same as `classify`, but classify each name only in the first report that has it."""
    classes = {name: _known.get(name) for name in names}
    new = [name for name, number in classes.items() if number is None]
    if new:
        classes.update(zip(new, classify(new).tolist(), strict=True))
        if len(_known) + len(new) > _MOST_KNOWN:
            _known.clear()
        _known.update((name, number) for name in new[:_MOST_KNOWN] if (number := classes[name]) is not None)
    return np.array([classes[name] for name in names], np.int64)


NUMBER_TYPES = ("FP4", "FP8", "TF32", "BF16", "FP16", "FP64", "FP32")
"""The number types of matrix products, in the order in which names are tried."""
_TYPES_OF_CONVOLUTIONS = {
    **{name: [rule.pattern for rule in RULES if rule.kernel_class == f"GEMM {name}"] for name in NUMBER_TYPES},
    "FP16": [r"f16|fp16|half|(?:^|[^a-z])h\d*cudnn"],
    "FP32": [r"f32f32_f32f32_f32|(?:^|[^a-z])scudnn|(?:^|[^a-z])sgemm"],
}
_TYPES_OF_ATTENTION = {"FP8": [r"e4m3|e5m2|fp8"], "BF16": [r"bf16|bfloat16"]}
"""The other types are not certain: cuDNN's kernels for BF16 are called `f16`, and those for FP32 may use TF32."""


def find_number_types(names: Sequence[str], kernel_classes: Sequence[str]) -> list[str]:
    """Return the number type of each kernel, given by its name and the label of its class; "" if it is not known."""
    text = pa.array(names, type=pa.string())
    tried = {"Convolution": _TYPES_OF_CONVOLUTIONS, "Attention": _TYPES_OF_ATTENTION}
    found = [label.removeprefix("GEMM ") if label.startswith("GEMM ") else "" for label in kernel_classes]
    found = [name if name in NUMBER_TYPES else "" for name in found]
    for label, types in tried.items():
        for number_type, patterns in types.items():
            matches = np.logical_or.reduce([_find_matches(text, pattern) for pattern in patterns])
            for i in np.flatnonzero(matches).tolist():
                if kernel_classes[i] == label and not found[i]:
                    found[i] = number_type
    return found


def _find_matches(text: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    matches = pc.match_substring_regex(text, pattern, ignore_case=True)
    return np.asarray(pc.fill_null(matches, False).to_numpy(zero_copy_only=False), dtype=np.bool_)
