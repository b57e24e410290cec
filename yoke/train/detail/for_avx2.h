// yoke/train/detail/for_avx2.h -- compiles a function for processors with AVX2, too.
#pragma once

#ifdef __x86_64__
#define YOKE_FOR_AVX2_TOO __attribute__((target_clones("avx2", "default")))
#else
#define YOKE_FOR_AVX2_TOO
#endif
