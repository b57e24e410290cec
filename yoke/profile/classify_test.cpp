#include <gtest/gtest.h>

#include "yoke/profile/trace.h"

namespace yoke::profile {
namespace {

Kind kind_of(std::string_view category, const char* name) { return classify(category, name).kind; }

// Names of kernels of cuBLAS, cuDNN, CUTLASS, PyTorch and Tensile, from public traces.
TEST(Classify, KnowsWhatKernelsRunOn) {
  EXPECT_EQ(kind_of("kernel", "ampere_sgemm_128x64_tn"), Kind::kPlainMatmul);
  EXPECT_EQ(kind_of("kernel", "void cutlass::Kernel<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>"), Kind::kPlainMatmul);
  EXPECT_EQ(kind_of("kernel", "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw"), Kind::kPlainMatmul);
  EXPECT_EQ(kind_of("kernel", "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4>"),
            Kind::kKernel);
  EXPECT_EQ(kind_of("kernel", "sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n"), Kind::kKernel);
  EXPECT_EQ(kind_of("kernel", "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn"), Kind::kKernel);
  EXPECT_EQ(kind_of("kernel", "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32"), Kind::kKernel);
  EXPECT_EQ(kind_of("kernel", "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::Half>>"),
            Kind::kMemoryBound);
  EXPECT_EQ(kind_of("kernel", "triton_poi_fused_add_cos_sin_0"), Kind::kKernel);
  EXPECT_EQ(kind_of("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)"), Kind::kDeviceCollective);
}

TEST(Classify, KnowsWhatTheHostDoes) {
  EXPECT_EQ(classify("user_annotation", "ProfilerStep#12").step, 12);
  EXPECT_EQ(kind_of("user_annotation", "ProfilerStep#x"), Kind::kIgnored);
  EXPECT_EQ(kind_of("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"), Kind::kLoader);
  EXPECT_EQ(kind_of("user_annotation", "Optimizer.step#Adam.step"), Kind::kOptimizer);
  EXPECT_EQ(kind_of("user_annotation", "Optimizer.zero_grad#Adam.zero_grad"), Kind::kIgnored);
  EXPECT_EQ(kind_of("user_annotation", "gloo:all_reduce"), Kind::kHostCollective);
  EXPECT_EQ(kind_of("cpu_op", "c10d::allreduce_"), Kind::kCollectiveCall);
  EXPECT_EQ(kind_of("cpu_op", "torch::distributed::reducer::mul_out"), Kind::kCollectiveCall);
  EXPECT_EQ(kind_of("cpu_op", "aten::mul"), Kind::kOperation);
  EXPECT_EQ(kind_of("gpu_user_annotation", "Optimizer.step#SGD.step"), Kind::kDeviceOptimizer);
  EXPECT_EQ(kind_of("cuda_runtime", "hipDeviceSynchronize"), Kind::kSync);
  EXPECT_EQ(kind_of("cuda_runtime", "cudaMemcpyAsync"), Kind::kCopyCall);
  EXPECT_EQ(kind_of("cuda_runtime", "cudaLaunchKernel"), Kind::kIgnored);
  EXPECT_EQ(kind_of("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"), Kind::kPageableCopy);
  EXPECT_EQ(kind_of("gpu_memcpy", "Memcpy DtoD (Device -> Device)"), Kind::kKernel);
}

// Categories and names of the traces that the repository of Kineto had (tb_plugin/samples, of June 2021).
TEST(Classify, KnowsTheCategoriesOfOldTraces) {
  EXPECT_EQ(classify("Operator", "ProfilerStep#5").step, 5);
  EXPECT_EQ(classify("cpu_op", "ProfilerStep#5").step, 5) << "torch 1.10 and 1.11";
  EXPECT_EQ(kind_of("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"), Kind::kLoader);
  EXPECT_EQ(kind_of("Operator", "Optimizer.step#SGD.step"), Kind::kOptimizer);
  EXPECT_EQ(kind_of("Operator", "Optimizer.zero_grad#SGD.zero_grad"), Kind::kIgnored);
  EXPECT_EQ(kind_of("Operator", "nccl:all_reduce"), Kind::kIgnored);
  EXPECT_EQ(kind_of("Operator", "CudnnConvolutionBackward"), Kind::kOperation);
  EXPECT_EQ(kind_of("Runtime", "cudaStreamSynchronize"), Kind::kSync);
  EXPECT_EQ(kind_of("Kernel", "volta_sgemm_128x64_nn"), Kind::kPlainMatmul);
  EXPECT_EQ(kind_of("Memcpy", "Memcpy HtoD (Pageable -> Device)"), Kind::kPageableCopy);
  EXPECT_EQ(kind_of("Memset", "Memset (Device)"), Kind::kKernel);
  EXPECT_EQ(kind_of("Trace", "PyTorch Profiler (0)"), Kind::kIgnored);
}

}  // namespace
}  // namespace yoke::profile
