"""Kernel classes. Expected classes are a person's reading of real kernel names, not the output of the table."""

# ruff: noqa: E501 (kernel names are long, and are searched for as they are)

import contextlib
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nsys2prv_ng.sources.cuda import kernel_classes
from nsys2prv_ng.sources.cuda.kernel_classes import KERNEL_CLASSES, RULES, classify, classify_once
from tests.conftest import NO_REPORTS, REPORTS, SAMPLES

# Names by library. Most are as profilers show them, with long argument lists cut.
EXPECTED: dict[str, list[str]] = {
    "GEMM FP64": [
        "ampere_dgemm_128x64_nn",
        "volta_dgemm_64x64_lower_nt",
        "volta_zgemm_64x64_nt",
        "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x32_16x4_nn_align1>(T1::Params)",
        "void cutlass::Kernel<cutlass_80_tensorop_z884gemm_64x64_8x3_nn_align1>(T1::Params)",
        "sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage3_warpsize2x2x1_tensor8x8x4_execute_kernel__5x_cublas",
        "void gemv2T_kernel_val<int, int, double, double, double, double, (int)128, (int)16, (int)4, (int)4, (bool)0, "
        "(bool)0, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const double>>>(T13, T5, T5)",
    ],
    "GEMM FP32": [
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x32x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "ampere_sgemm_128x64_nn",
        "volta_sgemm_32x128_tn",
        "maxwell_sgemm_128x64_tn",
        "volta_cgemm_32x32_nn",
        "void sgemm_largek_lds64<(bool)1, (bool)0, (int)5, (int)5, (int)4, (int)4, (int)4, (int)32>(float *, const float *)",
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_tnn_align1_bias_f32_relu",
        "void gemv2N_kernel<int, int, float, float, float, float, (int)128, (int)32, (int)4, (int)4, (int)1, (bool)0, "
        "cublasGemvParamsEx<int>>(T13)",
        "void gemmSN_TN_kernel<float, (int)128, (int)16, (int)2, (int)4, (int)4, (int)4, (bool)1, "
        "cublasGemvTensorStridedBatched<const float>>(cublasGemmSmallNParams<T9, T10, T1>)",
    ],
    "GEMM TF32": [
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4>(T1::Params)",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688tf32gemm_128x128_16x4_nn_align4>(T1::Params)",
        "ampere_tf32_s1688gemm_tf32_256x128_ldg8_f2f_stages_16x3_nt",
        "nvjet_sss_tf32_128x256_TNT",
        "void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u, 16384u, 64u, 32u, 64u, 1u, 128u>(unsigned int)",
    ],
    "GEMM FP16": [
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
        "ampere_h16816gemm_256x128_ldg8_stages_32x3_tn",
        "volta_h884gemm_256x64_ldg8_nn",
        "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_nt",
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8>(T1::Params)",
        "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT",
        "nvjet_sm90_hss_320x128_64x4_1x2_h_bz_TNT",
        "void gemvNSP_kernel<__half, __half, __half, float, (int)1, (int)32, (int)4, (int)1024>(T1)",
        "void marlin::Marlin<__half, (int)256, (int)1, (int)8, (int)8, (int)4, (int)8>(const int4 *, const int4 *)",
    ],
    "GEMM BF16": [
        "nvjet_sm90_tst_128x192_64x5_2x1_v_bz_coopB_NTN",
        "nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN",
        "nvjet_tss_256x128_64x4_1x2_h_bz_coopA_TNT",
        "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_stages_64x4_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_tn_align8>(T1::Params)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
        "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<(int)4>, "
        "cutlass::bfloat16_t, cute::tuple<long>>>>(T1::Params)",
        "bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128u2_s6_et64x8_m64x8x16_cga1x1x1_16dp256b_TN",
        "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, (int)128, (int)16>(T13)",
    ],
    "GEMM FP8": [
        "nvjet_qqtst_112x128_128x7_2x1_v_bz_coopA_algo2_TNN",
        "nvjet_sm100_qqsss_128x128_128x8_2x4_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT",
        "sm90_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_execute_kernel__5x_cublas",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 1024u, 1u, 256u>(unsigned int)",
        "cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_2x1x1_0_tnn_align16",
        "bmm_Bfloat16_E4m3E4m3_Fp32_t128x8x128u2_s6_et128x8_m128x8x32_cga1x1x1_16dp256b_TN",
        "_w8a8_block_fp8_matmul",
    ],
    "GEMM FP4": [
        "nvjet_sm100_ootst_128x256_256x4_2x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT",
        "nvjet_sm100_oohsh_128x256_256x5_2x2_2cta_h_bz_Avec16UE4M3_Bvec16UE4M3_TNT",
        "cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16_192x256_0_tnn_align32",
        "bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16_t128x8x512u2_s4_et128x8_m128x8x64_cga1x1x1_16dp256b_TN_swiGlu",
    ],
    "GEMM integer": [
        "ampere_int8_i16832gemm_int8_256x128_ldg16_relu_stages_64x3_tn",
        "turing_int8_i8816gemm_int8_128x128_ldg16_tn",
        "void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_128x256_64x3_tn_align16>(T1::Params)",
        "sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x32_execute_kernel__5x_cublas",
    ],
    "GEMM other": [
        "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, float, float, float, (bool)0>(T1)",
        "void cublasLt::epilogue::impl::globalKernel<(int)8, (int)32, float, __half, float, (bool)1>(T1)",
        "nvjet_sss_128x256_64x4_1x2_h_bz_TNT",
        "nvjet_sm90_xyz_128x256_64x4_1x2_h_bz_TNT",
        "triton_tem_fused_addmm_12",
        "triton_mm",
        "fused_moe_kernel",
        "matmul_kernel_persistent",
        "_lora_shrink_kernel",
        "Kernel2",
    ],
    "Convolution": [
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16",
        "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x16_stage4",
        "sm80_xmma_wgrad_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x128x8_stage3",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "turing_h1688cudnn_256x64_ldg8_relu_exp_interior_nhwc_tn_v1",
        "trt_volta_h884cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1",
        "void implicit_convolve_sgemm<float, float, (int)128, (int)5, (int)5, (int)3>(int, int, int, const T1 *)",
        "void precomputed_convolve_sgemm<float, (int)1024, (int)5, (int)5, (int)4, (int)3>(int, int, int)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(T1)",
        "void cudnn::cnn::wgrad2d_grouped_direct_kernel<float, float>(T1)",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x128_32x5_nhwc_align8>(T1::Params)",
        "void at::native::<unnamed>::conv_depthwise2d_forward_kernel<(int)3, float, int>(T1)",
        "void at::native::im2col_kernel<float>(long, const T1 *, long)",
        "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<(int)128, (int)4>>(ConvParamsBase)",
        "triton_tem_fused_convolution_3",
    ],
    "Attention": [
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, "
        "cutlass::bfloat16_t>, (bool)0>(Flash_fwd_params)",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<(int)64>>(T1)",
        "void flash::flash_bwd_dot_do_o_kernel<(bool)1, Flash_bwd_kernel_traits<(int)64>>(Flash_bwd_params)",
        "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<(int)128>>(Flash_fwd_params)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<"
        "(int)2, cute::tuple<int>, (int)128, cutlass::bfloat16_t>>>>(T1::Params)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
        "void cudnn::fusion::compute_dot_do_o_specialized<(bool)1, (int)64>(const void *, const void *, void *)",
        "void cudnn::fusion::convert_dq_to_16bits<(bool)1>(const void *, void *, unsigned int)",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
        "fmha_v2_flash_attention_fp16_64_64_S_128_sm86_kernel_nl",
        "fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512HVPerCta512PagedKvDenseP64VarSeqQ16Kv128StaticSwapsAbForGen",
        "void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, (int)128, (int)16, (int)128>(T1 *)",
        "void vllm::merge_attn_states_kernel<__nv_bfloat16, uint4, (unsigned int)128>(T1 *)",
        "kernel_unified_attention_2d",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<(flashinfer::MaskMode)1, (unsigned int)4>(T1)",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<flashinfer::DefaultAttention<(bool)0>>(T1)",
        "void mmha::masked_multihead_attention_kernel<unsigned short, (int)128>(T1)",
        "_gemm_mha_v2_0x2c7e0b9a",
        "_attn_fwd",
        "_attn_bwd_dkdv",
        "triton_tem_fused_flex_attention_0",
    ],
    "Normalisation": [
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2, const T1 *)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)",
        "void at::native::<unnamed>::layer_norm_grad_input_kernel_vectorized<float, float, (bool)0>(const T1 *)",
        "void at::native::<unnamed>::GammaBetaBackwardCUDAKernelTemplate<float, float, (unsigned int)32>(long, long)",
        "void at::native::<unnamed>::RowwiseMomentsCUDAKernel<float>(long, T1, const T1 *, T1 *, T1 *)",
        "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>(T1)",
        "void at::native::batch_norm_elementwise_backward_train<float>(T1)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, (int)512, (bool)1, (int)1>(cudnnTensorStruct)",
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, (int)512, (bool)1, (int)1>(T2)",
        "void cuApplyLayerNorm<float, float, __half>(T3 *, T2 *, T2 *, const T1 *, int, int, T2)",
        "void cuComputePartGradGammaBeta<float, float, __half>(const T3 *, const T1 *, int, int)",
        "void vllm::rms_norm_kernel<c10::BFloat16>(T1 *, const T1 *, const T1 *, float, int, int)",
        "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *, T1 *, const T1 *, float, int, int)",
        "void flashinfer::norm::FusedAddRMSNormKernel<(unsigned int)8, __nv_bfloat16>(T2 *, T2 *, T2 *)",
        "void transformer_engine::normalization::ln_fwd_tuned_kernel<transformer_engine::normalization::Kernel_traits<float>>(T1)",
        "void transformer_engine::normalization::rmsnorm_bwd_finalize_tuned_kernel<float>(T1)",
        "_layer_norm_fwd_1pass_kernel",
        "_rms_norm_forward_kernel",
        "triton_red_fused_native_layer_norm_0",
        "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_5",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0",
    ],
    "Softmax or loss": [
        "void at::native::<unnamed>::cunn_SoftMaxForwardReg<float, float, float, at::native::<unnamed>::LogSoftMaxForwardEpilogue, long>(T3 *)",
        "void at::native::<unnamed>::cunn_SoftMaxBackwardSmem<(int)4, float, float, float>(T2 *, const T4 *)",
        "void <unnamed>::softmax_warp_forward<float, float, float, (int)6, (bool)0, (bool)0>(T2 *, const T1 *, int)",
        "void <unnamed>::scaled_upper_triang_masked_softmax_warp_forward<__half, __half, float, (int)10>(T2 *)",
        "void at::native::<unnamed>::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(T1 *, T1 *, const T1 *)",
        "liger_cross_entropy_kernel",
        "void at::native::<unnamed>::ctc_loss_log_alpha_gpu_kernel<float, long>(T1 *)",
        "triton_per_fused__softmax_add_3",
        "triton_red_fused__log_softmax_nll_loss_forward_7",
    ],
    "Elementwise": [
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, std::array<char *, 3>>(int, T2, T3)",
        "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::<unnamed>::"
        "masked_fill_kernel(at::TensorIterator &, const c10::Scalar &)::[lambda() (instance 1)]>(T1)>(int, T3)",
        "void at::native::vectorized_elementwise_kernel<(int)8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &, "
        "at::native::GeluType)::[lambda() (instance 1)]::operator ()() const::[lambda(c10::BFloat16) (instance 1)]>(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::softplus_backward_kernel(T1)>(int, T2, T3)",
        "void <unnamed>::elementwise_kernel_with_index<int, at::native::arange_cuda_out(const c10::Scalar &)>(T1)",
        "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4, void at::native::templates::"
        "cuda::normal_and_transform<float, float, at::CUDAGeneratorImpl *>>(long)",
        "elementwise_kernel",
        "void at::native::<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int, (int)1, (int)4>(T1)",
        "void vllm::act_and_mul_kernel<c10::BFloat16, (T1 (*)(const T1 &)), (bool)1>(T1 *, const T1 *, int)",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, (bool)1>(const long *, T1 *, T1 *)",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel<(bool)0, (unsigned int)128>(T5 *)",
        "void fused_rope_forward<float>(int, int, int, int)",
        "void LSTM_elementWise_fp<__half, __half, float, (cudnnRNNBiasMode_t)2>(int, int, int, int)",
        "generatedNativePointwise",
        "cupy_multiply__float32_float_float32",
        "triton_poi_fused_add_mul_sigmoid_3",
        "triton_for_fused_0",
        "void axpy_kernel_val<float, float>(cublasAxpyParamsVal<T1, T1, T2>)",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<thrust::cuda_cub::"
        "__transform::unary_transform_f<float *>>, long>(T2, T3)",
        "vectorAdd(const float *, const float *, float *, int)",
    ],
    "Optimizer": [
        "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::FusedOptimizerTensorListMetadata<(int)4>, "
        "at::native::<unnamed>::FusedAdamMathFunctor<float, (int)4, (at::native::ADAM_MODE)1, (bool)0>>(T1, T2, T3...)",
        "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)2>, "
        "at::native::<unnamed>::TernaryOpScalarFunctor<float, (int)2>, at::native::LerpFunctor<float>, float>(T1, T2, T3...)",
        "void multi_tensor_apply_kernel<TensorListMetadata<(int)4>, AdamFunctor<float, float>, float>(long, volatile int *)",
        "void kOptimizer32bit2State<float, (int)3>(T1 *, T1 *, float *)",
        "fused_adam_kernel",
        "void LAMBStage1Functor_kernel<float>(T1)",
        "at::native::<unnamed>::amp_update_scale_cuda_kernel(float *, int *, const float *, double, double, int)",
    ],
    "Reduction": [
        "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>>>(T3)",
        "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::NormTwoOps<float, float>>>(T3)",
        "void cub::CUB_200200_900_NS::DeviceReduceKernel<cub::DeviceReducePolicy<float>::Policy600, float *>(T2)",
        "void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::DeviceReducePolicy<int>>(T2)",
        "void dot_kernel<float, (int)128, (int)0, cublasDotParams<cublasGemvTensor<const float>, cublasGemvTensor<float>>>(T4)",
        "void reduce_1Block_kernel<float, (int)128, (int)7, cublasGemvTensorStridedBatched<float>>(const T1 *, T1, T4)",
        "void at::native::<unnamed>::max_pool_forward_nchw<float, int>(int, const T1 *)",
        "void cudnn::pooling_fw_4d_kernel<float, float, cudnn::maxpooling_func<float>>(cudnnTensorStruct)",
        "triton_red_fused_sum_4",
        "triton_per_fused_mean_2",
        "void clover::par_reduce_kernel<field_summary(global_variables &)::[lambda(int) (instance 1)]>(clover::Range1d, T1)",
        "cupy_sum",
    ],
    "Embedding or index": [
        "void at::native::<unnamed>::embedding_backward_feature_kernel<float, float, long>(const T3 *, const T1 *)",
        "void at::native::vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int, long, long)",
        "void at::native::<unnamed>::indexSelectLargeIndex<float, long, unsigned int, (int)2, (int)2, (int)-2, (bool)1>(T1)",
        "void at::native::index_elementwise_kernel<(int)128, (int)4, void at::native::gpu_index_kernel<void at::native::"
        "index_kernel_impl<at::native::OpaqueType<(int)4>>(T1)>>(long, T3)",
        "void at::native::_scatter_gather_elementwise_kernel<(int)128, (int)8, void at::native::_cuda_scatter_gather_internal_kernel<(bool)1>>(int)",
        "void at::native::indexing_backward_kernel<float, (int)4>(const long *, const long *, const T1 *)",
        "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, (int)4>(const T1 *)",
        "void fbgemm_gpu::split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float>(T1)",
        "triton_poi_fused_embedding_0",
    ],
    "Sort, scan or select": [
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::DeviceRadixSortPolicy<long>>(T4 *)",
        "void cub::CUB_200700_900_NS::DeviceScanKernel<cub::DeviceScanPolicy<int>::Policy900, int *, int *>(T2)",
        "void cub::DeviceSelectSweepKernel<cub::DispatchSelectIf<long *>>(T1)",
        "void at::native::bitonicSortKVInPlace<(int)-2, (int)-1, (int)16, (int)16, float, long>(T1)",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, (int)2, (bool)0>(T1)",
        "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>(T1 *, const T1 *)",
        "void vllm::moe::topkGatingSoftmax<(int)8, (int)64, (int)4, (int)16, int>(const float *)",
        "void vllm::moe::moe_align_block_size_kernel<int>(const T1 *, int *)",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<(unsigned int)1024>(T1)",
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<(int)128, (int)16>>(SSMParamsBase)",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__merge_sort::BlockSortAgent<long *>, bool>(bool)",
        "triton_spl_fused_cumsum_0",
    ],
    "Copy, cast or fill": [
        "void at::native::<unnamed>::CatArrayBatchedCopy_vectorized<at::native::<unnamed>::OpaqueType<(unsigned int)2>>(char *)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::"
        "[lambda() (instance 3)]::operator ()() const, std::array<char *, 2>>(int, T1)",
        "void at::native::vectorized_elementwise_kernel<(int)8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::"
        "[lambda(float) (instance 1)], std::array<char *, 2>>(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, 1>>(int, T2, T3)",
        "cupy_fill",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(const T1 *)",
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>(const T1 *)",
        "void vllm::scaled_fp8_quant_kernel<c10::BFloat16>(c10::Float8_e4m3fn *, const T1 *)",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn, (bool)1>(const T1 *)",
        "void deep_gemm::transpose_fp32<(unsigned int)512>(const float *, float *)",
        "void transformer_engine::cast_transpose_kernel<(bool)0, float>(T1)",
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, (bool)0, (bool)1>(T1)",
        "void genericReformat::copyVectorizedKernel<double, __half, (bool)1>(T1)",
        "void copyPackedKernel<__half, __half, (int)0, (bool)1>(T1)",
        "triton_poi_fused__to_copy_3",
        "triton_poi_fused_cat_12",
        "triton_poi_fused_clone_transpose_2",
    ],
    "FFT": [
        "void regular_fft<(unsigned int)256, EPT<(unsigned int)4>, (unsigned int)8>(kernel_arguments_t<unsigned int>)",
        "void vector_fft<(unsigned int)1024, EPT<(unsigned int)8>, CONSTANT>(kernel_arguments_t<unsigned int>)",
        "void dpRadix0032B::kernel1Mem<unsigned int, double, (fftDirection_t)-1>(T1)",
        "void spVector1024C::kernelMem<unsigned int, float, (fftDirection_t)1>(T1)",
        "void multi_bluestein_postprocess<double>(T1)",
        "void fft2d_r2c_32x32<float, (bool)0, (unsigned int)1, (bool)0>(float2 *)",
        "VkFFT_main",
    ],
    "Sparse matrix": [
        "void cusparse::csrmv_v3_kernel<std::integral_constant<bool, (bool)0>, int, int, double, double>(T1)",
        "void csrMv_kernel<double, (int)128, (int)1, (int)2>(cusparseCsrMvParams<T1>)",
        "void spmm_kernel<float>(T1)",
    ],
    "NCCL": [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclDevKernel_AllGather_RING_LL",
        "ncclDevKernel_SendRecv",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm *, unsigned long, ncclWork *)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm *, unsigned long, ncclWork *)",
        "ncclSymDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymDevArgs)",
    ],
    "Communication other": [
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)8>(vllm::RankData *, vllm::RankSignals)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(int)2, __nv_bfloat16>(T1)",
        "void one_shot_all_reduce_kernel<c10::BFloat16, (int)16, (int)8>(T1 **)",
        "void deep_ep::intranode::dispatch<(int)8, (int)768, (int)8192>(int4 *, float *)",
        "nvshmemi_transfer_syncapi_update_mem",
        "void userbuffers_fp16_sum_inplace_gpu_rr_rs<(int)8>(int, int)",
        "void multimem_all_gather_kernel<(int)16>(char *)",
    ],
    "Other": [
        "void clover::par_ranged2d_kernel<flux_calc_kernel(int, int, int, int, double)::[lambda(int, int) (instance 1)]>(T1)",
        "my_kernel",
        "void lj_force<double, (int)128>(int, const double *)",
        "void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::ParallelFor<Force, Kokkos::Cuda>>(T1)",
        "broadcast_halo(double *)",
        "lambda_solver(double *)",
        "diffTensor(double *)",
        "loadAmplitudes(float *)",
        "",
    ],
}
NAMES = [(name, label) for label, names in EXPECTED.items() for name in names]


@pytest.mark.parametrize(("name", "label"), NAMES, ids=[name[:60] for name, _ in NAMES])
def test_class_of_real_names(name: str, label: str) -> None:
    assert KERNEL_CLASSES[int(classify([name])[0])] == label


def test_every_class_is_tested() -> None:
    assert set(EXPECTED) == set(KERNEL_CLASSES.values())


def test_each_class_has_a_rule() -> None:
    assert {rule.kernel_class for rule in RULES} | {"Other"} == set(KERNEL_CLASSES.values())


def test_names_are_classed_one_by_one() -> None:
    """The class of a name depends on no other name, and keeps its place."""
    names = [name for name, _ in NAMES]
    numbers = {label: number for number, label in KERNEL_CLASSES.items()}
    expected = [numbers[label] for _, label in NAMES]
    assert classify(names).tolist() == expected
    assert classify(names[::-1]).tolist() == expected[::-1]
    assert classify(pa.array(names)).tolist() == expected
    assert classify(np.array(names, dtype=object)).tolist() == expected


def test_missing_names_and_none_at_all() -> None:
    classes = classify(["ncclDevKernel_SendRecv", None])
    assert classes.dtype == np.int64 and classes.tolist() == [22, 24]
    assert classify([]).dtype == np.int64 and len(classify([])) == 0
    assert classify([None]).tolist() == [24]


# ------------------------------------------------------------------------------------------------ all names of reports

# Reading of every kernel of the real reports: short name, words of the demangled name that decide ("" for all the rest),
# class. The first line that fits holds.
READING: list[tuple[str, str, str]] = [
    ("CatArrayBatchedCopy_vectorized", "", "Copy, cast or fill"),
    ("GammaBetaBackwardCUDAKernelTemplate", "", "Normalisation"),
    ("Kernel2", "simt_sgemm", "GEMM FP32"),
    ("Kernel2", "tensorop_s1688gemm_", "GEMM TF32"),
    ("compute_dot_do_o_specialized", "", "Attention"),
    ("convert_dq_to_16bits", "", "Attention"),
    ("cudnn_generated_fort_native_sdpa", "", "Attention"),
    ("cunn_SoftMax", "", "Softmax or loss"),
    ("cupy_fill", "", "Copy, cast or fill"),
    ("cupy_multiply__", "", "Elementwise"),
    ("distribution_elementwise_grid_stride_kernel", "", "Elementwise"),
    ("elementwise_kernel_with_index", "arange", "Elementwise"),
    ("elementwise_kernel", "direct_copy_kernel_cuda", "Copy, cast or fill"),
    ("elementwise_kernel", "", "Elementwise"),
    ("embedding_backward_feature_kernel", "", "Embedding or index"),
    ("flash_fwd_kernel", "", "Attention"),
    ("layer_norm_grad_input_kernel_vectorized", "", "Normalisation"),
    ("multi_tensor_apply_kernel", "", "Optimizer"),
    ("ncclDevKernel_", "", "NCCL"),
    ("nll_loss_", "", "Softmax or loss"),
    ("nvjet_sm90_tst_", "", "GEMM BF16"),
    ("nvjet_tst_", "", "GEMM BF16"),
    ("par_ranged1d_kernel", "", "Other"),
    ("par_ranged2d_kernel", "", "Other"),
    ("par_reduce_kernel", "", "Reduction"),
    ("reduce_kernel", "", "Reduction"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_", "", "GEMM FP32"),
    ("softmax_warp_forward", "", "Softmax or loss"),
    ("splitKreduce_kernel", "", "GEMM other"),
    ("unrolled_elementwise_kernel", "direct_copy_kernel_cuda", "Copy, cast or fill"),
    ("unrolled_elementwise_kernel", "", "Elementwise"),
    ("vectorized_elementwise_kernel", "bfloat16_copy_kernel_cuda", "Copy, cast or fill"),
    ("vectorized_elementwise_kernel", "FillFunctor", "Copy, cast or fill"),
    ("vectorized_elementwise_kernel", "", "Elementwise"),
    ("vectorized_gather_kernel", "", "Embedding or index"),
    ("vectorized_layer_norm_kernel", "", "Normalisation"),
]


def _kernels(path: Path) -> list[tuple[str, str]]:
    """Distinct (short, demangled) names of a report, by plain SQL; none where it has no kernels."""
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'").fetchone():
            return []
        query = """SELECT DISTINCT s.value, d.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
                   JOIN StringIds s ON s.id = k.shortName JOIN StringIds d ON d.id = k.demangledName"""
        return database.execute(query).fetchall()


def _read(short: str, demangled: str) -> str:
    for start, word, label in READING:
        if short.startswith(start) and word in demangled:
            return label
    raise AssertionError(f"nobody has read {short}: {demangled}")


@pytest.mark.parametrize("folder", [SAMPLES, REPORTS / "gpu", REPORTS / "public"], ids=lambda folder: folder.name)
def test_every_kernel_of_the_reports(folder: Path) -> None:
    reports = sorted(folder.glob("*.sqlite"))
    if not reports and folder.name == "public":
        pytest.skip(NO_REPORTS)
    pairs = sorted({pair for report in reports for pair in _kernels(report)})
    assert pairs
    classes = classify([demangled for _, demangled in pairs])
    for (short, demangled), number in zip(pairs, classes, strict=True):
        assert KERNEL_CLASSES[int(number)] == _read(short, demangled), (short, demangled)


def test_each_name_is_classified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for listed in EXPECTED.values() for name in listed]
    looked_at: list[str] = []

    def note(new: list[str]) -> np.ndarray:
        looked_at.extend(new)
        return classify(new)

    monkeypatch.setattr(kernel_classes, "_known", {})
    monkeypatch.setattr(kernel_classes, "classify", note)
    for order in (names, names[::-1], names[3:5] * 2):
        assert classify_once(order).tolist() == classify(order).tolist()
    assert looked_at == list(dict.fromkeys(names))
    monkeypatch.setattr(kernel_classes, "_MOST_KNOWN", 5)
    assert classify_once([*names, "a new name"]).tolist() == classify([*names, "a new name"]).tolist()
    assert list(kernel_classes._known) == ["a new name"]
    assert classify_once(names).tolist() == classify(names).tolist()
