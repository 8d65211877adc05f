#ifndef KML_BASE_CLONES_H
#define KML_BASE_CLONES_H

/*
 * KML_CLONES before a kernel: the compiler makes one version for AVX2 and one for any x86-64, the loader
 * picks. AVX2 is named without FMA, so both versions round alike. Sanitizers do not get along with the
 * loader's choice (it runs before they are ready), so under them there is only the plain version. For static
 * functions only: clang 14 gives the chosen one a name that other files do not know.
 */
#if defined(__x86_64__) && !defined(KML_SANITIZED)
#define KML_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define KML_CLONES
#endif

/* Products and sums are rounded one by one. gcc does so in ISO mode (-std=c11); clang has to be told. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#endif
