// One source for OpenCL C 1.2, for CUDA C++ and for plain C, which runs it under sanitizers.

#if defined(__OPENCL_VERSION__)

typedef uint u32;
typedef ulong u64;
#define GLOBAL __global
#define CONSTANT __constant
#define INLINE static inline __attribute__((always_inline))
#define ENTRY __kernel __attribute__((reqd_work_group_size(ESP_LANES, 1, 1))) void
#define UNROLL _Pragma("unroll")
#define LOOP _Pragma("nounroll")
// CPU runtimes take long to compile large loops.
#define LOOP_BY_TWO _Pragma("nounroll")
#define LOCAL __local
#define LOCAL_ARRAY __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define BEFORE_BARRIER(lane) u32 lane = LANE;
#define GROUP ((u32)get_group_id(0))
#define LANE ((u32)get_local_id(0))

#elif defined(__CUDACC__)

typedef unsigned int u32;
typedef unsigned long long u64;
#define GLOBAL
#define CONSTANT static __device__ const
#define INLINE static __device__ __forceinline__
#define ENTRY extern "C" __global__ __launch_bounds__(ESP_LANES) void
#define UNROLL _Pragma("unroll")
#define LOOP _Pragma("unroll 1")
#define LOOP_BY_TWO _Pragma("unroll 2")
#define LOCAL
#define LOCAL_ARRAY __shared__
#define BARRIER __syncthreads()
#define BEFORE_BARRIER(lane) u32 lane = LANE;
#define GROUP blockIdx.x
#define LANE threadIdx.x

#else

#include <stdint.h>
typedef uint32_t u32;
typedef uint64_t u64;
#define GLOBAL
#define CONSTANT static const
#define INLINE static inline
#define ENTRY static void
#define UNROLL
#define LOOP
#define LOOP_BY_TWO
#define LOCAL
#define LOCAL_ARRAY static
#define BARRIER
// Lanes run one after another, so the first one does for all what has to be done before a barrier.
#define BEFORE_BARRIER(lane) for (u32 lane = 0; LANE == 0 && lane < ESP_LANES; lane++)
// The lane that plain.c runs at the moment.
static u32 plain_group, plain_lane;
#define GROUP plain_group
#define LANE plain_lane

#endif

// Rotates to the left by 1 to 31 bits.
INLINE u32 rotate_left(u32 word, u32 by) { return word << by | word >> (32 - by); }

// Converts between little endian and big endian.
INLINE u32 swap_bytes(u32 word) { return (rotate_left(word, 8) & 0x00ff00ff) | (rotate_left(word, 24) & 0xff00ff00); }

// All bits are set if the words are equal, otherwise none. There is no branch, because one word may be secret.
INLINE u32 equal_mask(u32 a, u32 b) {
    u32 difference = a ^ b;
    return ((difference | (0 - difference)) >> 31) - 1;
}

// Loads four words from a multiple of 16 bytes. A lane with a row of its own then needs one access and not four.
INLINE void load_four(u32 to[4], GLOBAL const u32 *from) {
#if defined(__CUDACC__)
    uint4 words = *reinterpret_cast<const uint4 *>(from);
    to[0] = words.x;
    to[1] = words.y;
    to[2] = words.z;
    to[3] = words.w;
#else
    UNROLL for (u32 i = 0; i < 4; i++) to[i] = from[i];
#endif
}

// A function of three bits: its table, whose bit 4a + 2b + c is the result, and the same as an expression.
#if defined(__CUDACC__)
// One instruction.
template <u32 TABLE> static __device__ __forceinline__ u32 gate(u32 a, u32 b, u32 c) {
    u32 result;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
    return result;
}
#define GATE(table, a, b, c, expression) gate<table>(a, b, c)
#else
#define GATE(table, a, b, c, expression) (expression)
#endif
