#ifndef JITGEMM_JITGEMM_H
#define JITGEMM_JITGEMM_H

/// libjitgemm for C99, and for every language that calls C. Names, fields and defaults are those of the C++ headers
/// beside this one, which say what each means; problem.hpp has the table of types and the arithmetic.
///
/// Errors: what can fail returns a jitgemm_status, throws nothing, and on failure writes to nothing that its arguments
///   point to but `needed`. The thread's last error says what was wrong. Pointers may not be NULL unless it says so.
/// Structs: one that begins with `size` is filled in by its _init function before all else. Fields may come to its end
///   in later versions: a program and a library of different versions understand each other as long as the program
///   leaves alone what the library does not know. Reserved words are 0.
/// Texts given are NUL-terminated. Texts wanted are copied to `buffer`, of `capacity` bytes. `needed`, which may be
///   NULL, gets the bytes that it takes with the NUL at its end. With a NULL buffer and a capacity of 0 that is all
///   that is done; with a NULL `needed` besides it is JITGEMM_STATUS_INVALID_ARGUMENT. A text is never cut short: too
///   small a buffer is left alone and JITGEMM_STATUS_BUFFER_TOO_SMALL.
/// Handles: a destroy function takes NULL, too. Handles may be used by any number of threads at once.
/// Flags are 0 for no and anything else for yes.

#include <stddef.h>
#include <stdint.h>

#define JITGEMM_VERSION_MAJOR 0
#define JITGEMM_VERSION_MINOR 1
#define JITGEMM_VERSION_PATCH 0
#define JITGEMM_VERSION "0.1.0"

#ifdef JITGEMM_STATIC
#define JITGEMM_C_EXPORT
#else
#define JITGEMM_C_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// The version of the library that runs, which may be newer than this header's: "0.1.0".
JITGEMM_C_EXPORT const char* jitgemm_version(void);

/* ------------------------------------------------------------------------------------------------------- errors */

/// What a call came to. Those from 1 on are ErrorCode of error.hpp.
typedef enum jitgemm_status {
  JITGEMM_STATUS_SUCCESS = 0,
  JITGEMM_STATUS_INVALID_PROBLEM = 1,  ///< sizes, types, leading dimensions or scalars that no kernel can serve
  JITGEMM_STATUS_INVALID_OPERAND = 2,  ///< a pointer that is null, misaligned, of the wrong memory, or overlaps
  JITGEMM_STATUS_INVALID_CONFIG = 3,   ///< a configuration that is not legal for the problem or the device
  JITGEMM_STATUS_INVALID_OPTION = 4,   ///< a field of jitgemm_options or environment variable that makes no sense
  JITGEMM_STATUS_NO_DEVICE = 5,        ///< no driver or no usable device
  JITGEMM_STATUS_NO_COMPILER = 6,      ///< NVRTC (or, for the emulator, a C++ compiler) is missing
  JITGEMM_STATUS_COMPILE_FAILED = 7,  ///< the generated source does not compile; the last error's log is the compiler's
  JITGEMM_STATUS_LOAD_FAILED = 8,     ///< the driver refuses the kernel
  JITGEMM_STATUS_LAUNCH_FAILED = 9,   ///< the driver refuses the launch, or an earlier one on this context failed
  JITGEMM_STATUS_OUT_OF_MEMORY = 10,  ///< on the device or the host
  JITGEMM_STATUS_WORKSPACE_TOO_SMALL = 11,
  JITGEMM_STATUS_NOT_CAPTURABLE = 12,       ///< the call needs something that stream capture forbids
  JITGEMM_STATUS_IO = 13,                   ///< a file that the caller named cannot be read or written
  JITGEMM_STATUS_EMULATOR_FAULT = 14,       ///< the emulator caught a race, a hang or a bad access; the log says where
  JITGEMM_STATUS_INTERNAL = 15,             ///< a bug of this library
  JITGEMM_STATUS_PEER_LOST = 16,            ///< another rank did not answer in time, or is gone
  JITGEMM_STATUS_COMMUNICATOR_FAILED = 17,  ///< NCCL says so
  // Of these functions alone.
  JITGEMM_STATUS_INTERRUPTED = 1000,       ///< a callback returned nonzero, or threw
  JITGEMM_STATUS_INVALID_ARGUMENT = 1001,  ///< NULL, a struct without _init, a reserved word, an index, a word
  JITGEMM_STATUS_BUFFER_TOO_SMALL = 1002   ///< for the text that was asked for
} jitgemm_status;

/// "invalid_problem"; "unknown" for what is no jitgemm_status.
JITGEMM_C_EXPORT const char* jitgemm_status_name(int32_t status);

/// The thread's last error: what its latest call that failed has left, whatever has succeeded since. Texts are "" where
/// there is nothing to say, and valid until the thread's next failure, or end.
JITGEMM_C_EXPORT jitgemm_status jitgemm_last_error_status(void);
JITGEMM_C_EXPORT const char* jitgemm_last_error_message(void);  ///< one line that ends with the way out
JITGEMM_C_EXPORT const char* jitgemm_last_error_problem(void);  ///< as jitgemm_problem_to_string() has it
JITGEMM_C_EXPORT const char* jitgemm_last_error_config(void);   ///< as jitgemm_config_to_string() has it
JITGEMM_C_EXPORT const char* jitgemm_last_error_call(void);     ///< the failed driver or compiler call
JITGEMM_C_EXPORT const char* jitgemm_last_error_log(void);      ///< the compiler's or the emulator's; may be many lines

/* -------------------------------------------------------------------------------------------------- plain values */

/// The driver's stream handle, NULL for the default stream. A cudaStream_t and a CUstream are this pointer.
struct CUstream_st;
typedef struct CUstream_st* jitgemm_stream;

// Enumerations are int32_t wherever they are passed, so that each has one size, and every value may be looked at.

/// Element types: DataType of types.hpp.
typedef int32_t jitgemm_data_type;
enum {
  JITGEMM_F16 = 0,
  JITGEMM_BF16 = 1,
  JITGEMM_F32 = 2,   ///< as an input: multiplied in full precision, without tensor cores
  JITGEMM_TF32 = 3,  ///< f32 in memory
  JITGEMM_F64 = 4,
  JITGEMM_E4M3 = 5,
  JITGEMM_E5M2 = 6,
  JITGEMM_S8 = 7,
  JITGEMM_S32 = 8,
  JITGEMM_AUTOMATIC = 9  ///< of C: the type that goes with D's
};

typedef int32_t jitgemm_layout;
enum { JITGEMM_ROW_MAJOR = 0, JITGEMM_COLUMN_MAJOR = 1 };

typedef int32_t jitgemm_bias;
enum {
  JITGEMM_BIAS_NONE = 0,
  JITGEMM_BIAS_ALONG_N = 1,  ///< N elements, one a column of D
  JITGEMM_BIAS_ALONG_M = 2   ///< M elements, one a row of D
};

typedef int32_t jitgemm_activation;
enum {
  JITGEMM_ACTIVATION_NONE = 0,
  JITGEMM_RELU = 1,
  JITGEMM_LEAKY_RELU = 2,
  JITGEMM_GELU_ERF = 3,
  JITGEMM_GELU_TANH = 4,
  JITGEMM_SILU = 5
};

/// Which scales an A or B has.
typedef int32_t jitgemm_scaling;
enum {
  JITGEMM_SCALING_VALUE = 0,         ///< one for all of it
  JITGEMM_SCALING_VECTOR = 1,        ///< M of an A, one a row; N of a B, one a column
  JITGEMM_SCALING_BLOCK_1X128 = 2,   ///< one for each row (column) and 128 of k
  JITGEMM_SCALING_BLOCK_128X128 = 3  ///< one for each 128 rows (columns) and 128 of k
};

/// Whether the matrices of a batch are groups that the device counts: jitgemm_operands.group_rows.
typedef int32_t jitgemm_grouping;
enum {
  JITGEMM_GROUPING_NONE = 0,
  JITGEMM_GROUPING_OFFSETS = 1,  ///< all groups' rows in one A, C and D, one after the other; where each ends
  JITGEMM_GROUPING_COUNTS = 2,   ///< an A, C and D of m rows for each group; how many of them it has
  JITGEMM_GROUPING_ALONG_K = 3   ///< some of k of one A and B, and a C and D, for each group; where each ends in k
};

/// Where the matrices of a batch lie.
typedef int32_t jitgemm_batch_mode;
enum {
  JITGEMM_BATCH_MODE_STRIDED = 0,  ///< jitgemm_matrix.stride elements apart
  JITGEMM_BATCH_MODE_POINTERS = 1  ///< of the b of groups of rows: where an array of pointers on the device says
};

/// Where e4m3 and e5m2 products are added up.
typedef int32_t jitgemm_accumulation;
enum { JITGEMM_ACCUMULATION_FAST = 0, JITGEMM_ACCUMULATION_PROMOTED = 1 };

typedef int32_t jitgemm_main_loop;
enum { JITGEMM_MAIN_LOOP_SM80 = 0, JITGEMM_MAIN_LOOP_SM90 = 1 };

typedef int32_t jitgemm_schedule;
enum {
  JITGEMM_DATA_PARALLEL = 0,
  JITGEMM_PERSISTENT = 1,
  JITGEMM_SPLIT_K = 2,
  JITGEMM_STREAM_K = 3,
  JITGEMM_STREAM_K_ONE_TILE = 4,
  JITGEMM_STREAM_K_TWO_TILE = 5
};

/// How good the answer is that chose a configuration, best first: PlanSource of plan.hpp.
typedef int32_t jitgemm_choice_source;
enum {
  JITGEMM_CHOICE_PINNED = 0,
  JITGEMM_CHOICE_EXACT = 1,
  JITGEMM_CHOICE_MEASURED = 2,
  JITGEMM_CHOICE_NEAREST = 3,
  JITGEMM_CHOICE_MODEL = 4,
  JITGEMM_CHOICE_FALLBACK = 5,
  JITGEMM_CHOICE_AT_HAND = 6  ///< a kernel that needs no compiler, in place of such a choice
};

typedef int32_t jitgemm_device_kind;
enum {
  JITGEMM_DEVICE_CUDA = 0,
  JITGEMM_DEVICE_EMULATOR = 1,     ///< this CPU: right results, slowly
  JITGEMM_DEVICE_COMPILE_ONLY = 2  ///< no device: plans, sources and jitgemm_warm() for jitgemm_options.architecture
};

typedef int32_t jitgemm_tuning;
enum {
  JITGEMM_TUNING_DEFAULT = -1,  ///< JITGEMM_TUNING=off|cached|on, else on; on the emulator cached
  JITGEMM_TUNING_OFF = 0,
  JITGEMM_TUNING_CACHED = 1,
  JITGEMM_TUNING_ON = 2
};

/// The word for an enumerator in texts; "unknown" for what is none.
JITGEMM_C_EXPORT const char* jitgemm_data_type_name(jitgemm_data_type type);
JITGEMM_C_EXPORT const char* jitgemm_layout_name(jitgemm_layout layout);
JITGEMM_C_EXPORT const char* jitgemm_bias_name(jitgemm_bias bias);
JITGEMM_C_EXPORT const char* jitgemm_activation_name(jitgemm_activation activation);
JITGEMM_C_EXPORT const char* jitgemm_scaling_name(jitgemm_scaling scaling);
JITGEMM_C_EXPORT const char* jitgemm_grouping_name(jitgemm_grouping grouping);
JITGEMM_C_EXPORT const char* jitgemm_batch_mode_name(jitgemm_batch_mode batch_mode);
JITGEMM_C_EXPORT const char* jitgemm_accumulation_name(jitgemm_accumulation accumulation);
JITGEMM_C_EXPORT const char* jitgemm_main_loop_name(jitgemm_main_loop main_loop);
JITGEMM_C_EXPORT const char* jitgemm_schedule_name(jitgemm_schedule schedule);
JITGEMM_C_EXPORT const char* jitgemm_choice_source_name(jitgemm_choice_source source);

/// The inverses, of what a program gives; JITGEMM_AUTOMATIC is no text's. A text that names nothing is
/// JITGEMM_STATUS_INVALID_ARGUMENT, with the words that there are.
JITGEMM_C_EXPORT jitgemm_status jitgemm_data_type_parse(const char* text, jitgemm_data_type* type);
JITGEMM_C_EXPORT jitgemm_status jitgemm_layout_parse(const char* text, jitgemm_layout* layout);
JITGEMM_C_EXPORT jitgemm_status jitgemm_bias_parse(const char* text, jitgemm_bias* bias);
JITGEMM_C_EXPORT jitgemm_status jitgemm_activation_parse(const char* text, jitgemm_activation* activation);
JITGEMM_C_EXPORT jitgemm_status jitgemm_scaling_parse(const char* text, jitgemm_scaling* scaling);
JITGEMM_C_EXPORT jitgemm_status jitgemm_grouping_parse(const char* text, jitgemm_grouping* grouping);
JITGEMM_C_EXPORT jitgemm_status jitgemm_batch_mode_parse(const char* text, jitgemm_batch_mode* batch_mode);
JITGEMM_C_EXPORT jitgemm_status jitgemm_accumulation_parse(const char* text, jitgemm_accumulation* accumulation);
JITGEMM_C_EXPORT jitgemm_status jitgemm_schedule_parse(const char* text, jitgemm_schedule* schedule);

JITGEMM_C_EXPORT int32_t jitgemm_bits_of(jitgemm_data_type type);  ///< of one element; 0 for what is no element type
JITGEMM_C_EXPORT size_t jitgemm_size_of(jitgemm_data_type type);   ///< bytes of one; 0 for what is no element type
/// The type of D that is usual for an A of this type.
JITGEMM_C_EXPORT jitgemm_data_type jitgemm_default_output(jitgemm_data_type a);

/// A batch stride that follows from the matrix: one after the other without a gap.
#define JITGEMM_PACKED_STRIDE (-1)

/// A matrix as its elements lie in memory: Matrix of problem.hpp.
typedef struct jitgemm_matrix {
  jitgemm_data_type type;
  jitgemm_layout layout;
  int64_t ld;                     ///< elements from one row to the next (column-major: one column); 0 means packed
  int64_t stride;                 ///< elements from one matrix of a batch to the next; 0 uses one A, B or C for all
  int32_t alignment;              ///< bytes; what plans, sources and jitgemm_warm() may assume of the pointer
  jitgemm_scaling scaling;        ///< of an A or B: what its scales are, if it has any; of a D: 1X128 gives it some
  jitgemm_batch_mode batch_mode;  ///< of the b of groups alone: POINTERS where each group's lies somewhere else
  int32_t reserved_word;
  int64_t reserved[3];
} jitgemm_matrix;

/// What becomes of x = alpha * A * B + beta * C before it is stored.
typedef struct jitgemm_epilogue {
  jitgemm_bias bias;
  jitgemm_activation activation;
  double slope;  ///< of leaky_relu; not NaN
  /// What jitgemm_epilogue_define() gave; 0: none. C, bias and activation are then its own operands and code. With one
  /// of pairs of columns ("// pairs halves" or "// pairs neighbours") D is M x N / 2, and N even;
  /// scales of B are of its N columns as they lie.
  uint64_t function;
  int64_t reserved[7];
} jitgemm_epilogue;

/// One operand of jitgemm_epilogue.function in one call: EpilogueValue of problem.hpp.
typedef struct jitgemm_epilogue_value {
  const void* in;
  void* out;
  double scalar;
  int64_t ld;  ///< 0: packed
  /// JITGEMM_PACKED_STRIDE: matrices one after the other; one vector for all. With JITGEMM_GROUPING_OFFSETS only
  /// vectors along_n have another one: leave it at that for the others.
  int64_t stride;
} jitgemm_epilogue_value;

/// What is computed, for each of `batch` matrices: D = activation(alpha * A * B + beta * C + bias), where A is M x K,
/// B is K x N, and C and D are M x N and row-major. Problem of problem.hpp is the contract.
typedef struct jitgemm_problem {
  size_t size;
  int64_t m, n, k;
  int64_t batch;
  jitgemm_matrix a, b, c, d;
  double alpha;
  double beta;  ///< 0 never reads C
  jitgemm_epilogue epilogue;
  jitgemm_accumulation accumulation;
  jitgemm_grouping grouping;
  int64_t expected_m;  ///< rows that a group is expected to have, for the choice alone; 0: all the same, or no grouping
} jitgemm_problem;

/// The memory of one call, alive until the stream has passed the call: Operands of problem.hpp.
typedef struct jitgemm_operands {
  size_t size;
  const void* a;
  const void* b;  ///< with JITGEMM_BATCH_MODE_POINTERS an array of pointers, one a group, in memory as the matrices'
  const void* c;  ///< ignored when beta = 0
  void* d;
  const void* bias;      ///< ignored without jitgemm_epilogue.bias
  const float* scale_a;  ///< f32, of the same memory as the matrices: one, of which NULL is 1, or with
                         ///< JITGEMM_SCALING_VECTOR M for scale_a and N for scale_b, of groups N each
  const float* scale_b;
  const float* scale_d;
  void* workspace;  ///< 256-byte aligned; NULL: the context keeps one per stream
  size_t workspace_bytes;
  const jitgemm_epilogue_value* epilogue;  ///< one for each operand of jitgemm_epilogue.function, in their order
  size_t epilogue_count;
  float* scales_d;            ///< of a D with scales of its own, written from a multiple of 16 bytes on; else NULL
  const int32_t* group_rows;  ///< with a grouping, in device memory: each group's end, or its rows; else NULL
} jitgemm_operands;

/// How a problem is computed: KernelConfig of kernel_config.hpp.
typedef struct jitgemm_config {
  size_t size;
  jitgemm_main_loop main_loop;
  int32_t block_m, block_n, block_k;  ///< tile of D, and the depth of one k-block
  int32_t group_m;                    ///< tile rows per group of the raster order; 0: linear row order
  int32_t stages;                     ///< k-blocks in flight in shared memory
  int32_t warps;                      ///< that multiply
  int32_t cluster_m, cluster_n, cluster_k;
  int32_t ping_pong, swap_ab, pack_a, pack_b;  ///< flags
  jitgemm_schedule schedule;
  int32_t splits;  ///< of split_k, else 1
  int32_t grid;    ///< thread blocks of the persistent and stream-K schedules, of whole clusters; 0: a cluster a tile
  int32_t cluster_at_launch;  ///< flag
} jitgemm_config;

/// Fill a struct in with the defaults of its C++ counterpart, and its size. Others than C pass the bytes of the struct
/// as they know it to the _init_sized functions: JITGEMM_STATUS_INVALID_ARGUMENT if no version has as few.
JITGEMM_C_EXPORT jitgemm_status jitgemm_problem_init_sized(jitgemm_problem* problem, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_operands_init_sized(jitgemm_operands* operands, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_config_init_sized(jitgemm_config* config, size_t size);
static inline jitgemm_status jitgemm_problem_init(jitgemm_problem* problem) {
  return jitgemm_problem_init_sized(problem, sizeof *problem);
}
static inline jitgemm_status jitgemm_operands_init(jitgemm_operands* operands) {
  return jitgemm_operands_init_sized(operands, sizeof *operands);
}
static inline jitgemm_status jitgemm_config_init(jitgemm_config* config) {
  return jitgemm_config_init_sized(config, sizeof *config);
}

/// One line, `m=.. n=.. k=.. a=.. b=.. d=.. ...`; what reads it back gets the same work. JITGEMM_STATUS_INVALID_PROBLEM
/// for an enumerator that nothing reads back.
JITGEMM_C_EXPORT jitgemm_status jitgemm_problem_to_string(const jitgemm_problem* problem, char* buffer, size_t capacity,
                                                          size_t* needed);
/// The inverse, into a problem that has been filled in by its _init. JITGEMM_STATUS_INVALID_PROBLEM.
JITGEMM_C_EXPORT jitgemm_status jitgemm_problem_parse(const char* text, jitgemm_problem* problem);
/// Sets what jitgemm_problem_to_string() calls `name`. JITGEMM_STATUS_INVALID_PROBLEM for a field or a value that there
/// is not.
JITGEMM_C_EXPORT jitgemm_status jitgemm_problem_set_field(jitgemm_problem* problem, const char* name,
                                                          const char* value);
/// One line, which jitgemm_config_parse() reads back. JITGEMM_STATUS_INVALID_CONFIG for an enumerator that it does not.
JITGEMM_C_EXPORT jitgemm_status jitgemm_config_to_string(const jitgemm_config* config, char* buffer, size_t capacity,
                                                         size_t* needed);
/// JITGEMM_STATUS_INVALID_CONFIG.
JITGEMM_C_EXPORT jitgemm_status jitgemm_config_parse(const char* text, jitgemm_config* config);

/// Makes an epilogue of one's own known to this process, for good: a line for pairs, if any, and for each operand, then
/// CUDA C++ that defines one function, as EpilogueFunction of epilogue.hpp has it. `function` is the same in every
/// process. Compiles nothing. JITGEMM_STATUS_INVALID_PROBLEM, with the line, for what cannot be used.
JITGEMM_C_EXPORT jitgemm_status jitgemm_epilogue_define(const char* text, uint64_t* function);
/// The text that has been defined as `function`.
JITGEMM_C_EXPORT jitgemm_status jitgemm_epilogue_text(uint64_t function, char* buffer, size_t capacity, size_t* needed);

/* ------------------------------------------------------------------------------------------------------ contexts */

/// What every choice of a context keeps to: Constraints of constraints.hpp.
typedef struct jitgemm_constraints {
  size_t workspace_bytes;   ///< most that jitgemm_workspace_size() comes to; SIZE_MAX: any
  int32_t batch_invariant;  ///< flag
  int32_t sms;              ///< most SMs that the blocks of one call occupy; 0: all
  int64_t reserved[4];
} jitgemm_constraints;

/// Computes a call by other means, cuBLAS say, on the stream, and sets *served to 1; leaves it 0 where it cannot.
/// Called by the thread that calls jitgemm_gemm() or jitgemm_plan_run(), with what it was given. Nonzero ends the call
/// with JITGEMM_STATUS_INTERRUPTED. It must not ask this context for the same problem, which would call it again. No
/// callback may destroy what the call uses; the structs it gets are of the size that the library knows.
typedef int (*jitgemm_fallback)(void* user, const jitgemm_problem* problem, const jitgemm_operands* operands,
                                jitgemm_stream stream, int32_t* served);
/// Called between measurements, with the candidates compiled and checked so far, of how many, and with none done every
/// 50 ms by a call that waits for another thread's measurement, so that threads may call it at the same time. Nonzero
/// ends the measurement or the wait, and the call that caused it with JITGEMM_STATUS_INTERRUPTED; the context is as
/// good as before.
typedef int (*jitgemm_options_progress)(void* user, const jitgemm_problem* problem, int32_t done, int32_t total);
/// The same of one jitgemm_tune().
typedef int (*jitgemm_tune_progress)(void* user, int32_t done, int32_t total);

/// ContextOptions of options.hpp.
typedef struct jitgemm_options {
  size_t size;
  jitgemm_device_kind device;
  int32_t cuda_device;       ///< as jitgemm_cuda_device() counts them; -1: the calling thread's current one
  const char* architecture;  ///< of compile_only, and of the emulator: "sm_80", "sm_90a"; NULL is ""
  const char* cache_dir;     ///< NULL: JITGEMM_CACHE_DIR, $XDG_CACHE_HOME/jitgemm, ~/.cache/jitgemm
  double tuning_budget_seconds;
  double tuning_total_budget_seconds;
  jitgemm_constraints constraints;
  size_t workspace_bound_bytes;
  jitgemm_tuning tuning;
  int32_t bucket_m;               ///< flag
  int32_t dependent_launch;       ///< flag
  int32_t compile_in_background;  ///< flag
  jitgemm_fallback fallback;      ///< NULL: none
  void* fallback_user;
  jitgemm_options_progress progress;  ///< NULL: none
  void* progress_user;
  uint64_t emulator_seed;
  int32_t emulator_sm_count;
  int32_t reserved_word;
  double at_hand_within;  ///< 0: off; else 1 or more
} jitgemm_options;

/// DeviceDescription of device.hpp.
typedef struct jitgemm_device {
  size_t size;
  char name[256];
  char architecture[32];  ///< "sm_90a"
  size_t smem_bytes_per_block, l2_bytes, memory_bytes;
  int32_t sm_count;
  int32_t emulated;  ///< flag
} jitgemm_device;

/// Counts since the context was made: Counters of context.hpp.
typedef struct jitgemm_counters {
  size_t size;
  uint64_t launches, compiles, disk_hits, memory_hits, rebuilt, tuned;
  uint64_t stopgaps, unkept;
  uint64_t workspace_bytes, graph_workspace_bytes;  ///< held now
} jitgemm_counters;

JITGEMM_C_EXPORT jitgemm_status jitgemm_options_init_sized(jitgemm_options* options, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_device_init_sized(jitgemm_device* device, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_counters_init_sized(jitgemm_counters* counters, size_t size);
static inline jitgemm_status jitgemm_options_init(jitgemm_options* options) {
  return jitgemm_options_init_sized(options, sizeof *options);
}
static inline jitgemm_status jitgemm_device_init(jitgemm_device* device) {
  return jitgemm_device_init_sized(device, sizeof *device);
}
static inline jitgemm_status jitgemm_counters_init(jitgemm_counters* counters) {
  return jitgemm_counters_init_sized(counters, sizeof *counters);
}

/// The visible CUDA devices, 0 without a driver, and one of them.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cuda_device_count(size_t* count);
JITGEMM_C_EXPORT jitgemm_status jitgemm_cuda_device(size_t index, jitgemm_device* device);

/// One device's kernels, tuning results and workspaces: Context of context.hpp.
typedef struct jitgemm_context jitgemm_context;

/// NULL options are the defaults: the thread's current CUDA device.
JITGEMM_C_EXPORT jitgemm_status jitgemm_context_create(const jitgemm_options* options, jitgemm_context** context);
/// Waits for nothing but a compile in the background that has begun: the caller synchronises its streams first. Not
/// while a call uses it, so not in a callback. What was made with the context - plans, lists, reports
/// - holds on to it, and may go before or after it: its memory is freed with the last of them.
JITGEMM_C_EXPORT void jitgemm_context_destroy(jitgemm_context* context);

/// Enqueues D = activation(alpha * A * B + beta * C + bias) on `stream` and returns. With a config, by that one; NULL:
/// by the context's choice, and the first call with a new problem may choose, compile or load a kernel. Legal in stream
/// capture. Who calls often with one problem takes jitgemm_plan_run().
JITGEMM_C_EXPORT jitgemm_status jitgemm_gemm(jitgemm_context* context, const jitgemm_problem* problem,
                                             const jitgemm_config* config, const jitgemm_operands* operands,
                                             jitgemm_stream stream);
/// Compiles into the on-disk cache what jitgemm_gemm() would run.
JITGEMM_C_EXPORT jitgemm_status jitgemm_warm(jitgemm_context* context, const jitgemm_problem* problem);
/// Bytes of jitgemm_operands.workspace with which jitgemm_gemm() runs what it would run without one. Without a config
/// it counts as the problem's first use, and may measure.
JITGEMM_C_EXPORT jitgemm_status jitgemm_workspace_size(jitgemm_context* context, const jitgemm_problem* problem,
                                                       const jitgemm_config* config, size_t* bytes);
/// Frees all workspaces that neither a call in progress nor a graph uses, and waits for the device to do so.
JITGEMM_C_EXPORT jitgemm_status jitgemm_trim(jitgemm_context* context);
/// Waits for the stream. JITGEMM_STATUS_INVALID_OPERAND: a call that has run since the last check was given
/// jitgemm_operands.group_rows that go backwards or out of range, or pointers to b that are none; the message says
/// how many, and names a group. Not in stream capture.
JITGEMM_C_EXPORT jitgemm_status jitgemm_check(jitgemm_context* context, jitgemm_stream stream);
JITGEMM_C_EXPORT jitgemm_status jitgemm_get_device(const jitgemm_context* context, jitgemm_device* device);
JITGEMM_C_EXPORT jitgemm_status jitgemm_get_counters(const jitgemm_context* context, jitgemm_counters* counters);

/* --------------------------------------------------------------------------------------------------------- plans */

/// A problem that a context has looked at once: what runs it again and again, and what was known of the choice when the
/// plan was made, updated or compiled: Plan of plan.hpp.
typedef struct jitgemm_plan jitgemm_plan;

/// Measures and compiles nothing. With a config the plan is of that one; NULL: of what jitgemm_gemm() would run now.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_create(jitgemm_context* context, const jitgemm_problem* problem,
                                                    const jitgemm_config* config, jitgemm_plan** plan);
JITGEMM_C_EXPORT void jitgemm_plan_destroy(jitgemm_plan* plan);  ///< not while a call uses it

/// jitgemm_gemm() of the plan's problem, and config if it has one: does what the problem's first call does where it is
/// the first, and runs what is the context's choice by then, not what it was when the plan was made.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_run(const jitgemm_plan* plan, const jitgemm_operands* operands,
                                                 jitgemm_stream stream);

/// Asks anew what would run now. Forgets sources and binaries of before.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_update(jitgemm_plan* plan);
/// The same once the kernel is compiled, so that registers and spills are known.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_compile(jitgemm_plan* plan);

/// Where the cost model expects the time to go, in microseconds: PredictedTime of plan.hpp.
typedef struct jitgemm_predicted_time {
  size_t size;
  double us;
  double launch_us, packing_us, main_loop_us, epilogue_us;
  double fixup_us, memory_us, power_us;
} jitgemm_predicted_time;

/// Plan of plan.hpp, but for its structs and texts, which have functions of their own.
typedef struct jitgemm_plan_info {
  size_t size;
  jitgemm_constraints constraints;  ///< that it was chosen under
  double measured_us;               ///< median; 0 when not measured
  double spread;                    ///< of the measurement: (p90 - p10) / median
  double expected_regret;           ///< of the sources `nearest` and `at_hand`; 0 for all others
  size_t runner_up_count;           ///< for jitgemm_plan_get_runner_up()
  size_t workspace_bytes, smem_bytes;
  size_t packed_bytes;      ///< of the workspace: the copies of packed operands
  int64_t stream_k_blocks;  ///< iterations in total that are dealt out k-block by k-block
  jitgemm_choice_source source;
  int32_t tiles_m, tiles_n;
  int32_t stream_k_tiles, data_parallel_tiles;
  int32_t ctas;               ///< grid size of the launch
  int32_t k_blocks_per_tile;  ///< iterations per tile
  int32_t threads;
  int32_t registers, spill_bytes;  ///< -1 until it is compiled
} jitgemm_plan_info;

JITGEMM_C_EXPORT jitgemm_status jitgemm_predicted_time_init_sized(jitgemm_predicted_time* time, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_info_init_sized(jitgemm_plan_info* info, size_t size);
static inline jitgemm_status jitgemm_predicted_time_init(jitgemm_predicted_time* time) {
  return jitgemm_predicted_time_init_sized(time, sizeof *time);
}
static inline jitgemm_status jitgemm_plan_info_init(jitgemm_plan_info* info) {
  return jitgemm_plan_info_init_sized(info, sizeof *info);
}

/// Normalised: leading dimensions, strides and alignments as they are used.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_get_problem(const jitgemm_plan* plan, jitgemm_problem* problem);
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_get_config(const jitgemm_plan* plan, jitgemm_config* config);
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_get_predicted_time(const jitgemm_plan* plan, jitgemm_predicted_time* time);
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_get_info(const jitgemm_plan* plan, jitgemm_plan_info* info);
/// Of the measurement, best first. `config` and `median_us` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_get_runner_up(const jitgemm_plan* plan, size_t index,
                                                           jitgemm_config* config, double* median_us);

// Texts.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_explain(const jitgemm_plan* plan, char* buffer, size_t capacity,
                                                     size_t* needed);  ///< all for people, several lines
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_json(const jitgemm_plan* plan, char* buffer, size_t capacity,
                                                  size_t* needed);  ///< and for programs: one object, in a line
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_why(const jitgemm_plan* plan, char* buffer, size_t capacity,
                                                 size_t* needed);
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_rates(const jitgemm_plan* plan, char* buffer, size_t capacity,
                                                   size_t* needed);  ///< what the cost model knows of the device
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_device(const jitgemm_plan* plan, char* buffer, size_t capacity,
                                                    size_t* needed);

/// The generated source of the GEMM kernel that the plan tells of, and the same compiled: a cubin, or a shared object
/// on the emulator. A binary has no NUL at its end. The plan keeps what it has generated and compiled for you.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_source(const jitgemm_plan* plan, char* buffer, size_t capacity,
                                                    size_t* needed);
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_binary(const jitgemm_plan* plan, void* buffer, size_t capacity,
                                                    size_t* needed);
/// Of all its kernels, in the order of their launches. The GEMM kernel is the last.
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_kernel_count(const jitgemm_plan* plan, size_t* count);
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_kernel_name(const jitgemm_plan* plan, size_t kernel, char* buffer,
                                                         size_t capacity, size_t* needed);  ///< "gemm" or "packing"
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_kernel_entry(const jitgemm_plan* plan, size_t kernel, char* buffer,
                                                          size_t capacity, size_t* needed);  ///< its function
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_kernel_source(const jitgemm_plan* plan, size_t kernel, char* buffer,
                                                           size_t capacity, size_t* needed);
JITGEMM_C_EXPORT jitgemm_status jitgemm_plan_kernel_binary(const jitgemm_plan* plan, size_t kernel, void* buffer,
                                                           size_t capacity, size_t* needed);

/* ----------------------------------------------------------------------------------------------- several devices */

/// An ncclComm_t: the caller's, of one device a rank.
struct ncclComm;
typedef struct ncclComm* jitgemm_nccl_communicator;

/// What travels between the ranks: Exchange of exchange.hpp.
typedef int32_t jitgemm_exchange;
enum {
  JITGEMM_ALL_GATHER_A = 0,  ///< a rank has m / ranks rows of A and its own n columns of B; all m rows of these of D
  JITGEMM_REDUCE_SCATTER_D = 1,  ///< its own k columns of A and rows of B; m / ranks rows of the sum over ranks
  JITGEMM_ALL_REDUCE_D = 2       ///< the same, and all m rows
};
/// "all_gather_a"; "unknown" for what is none.
JITGEMM_C_EXPORT const char* jitgemm_exchange_name(jitgemm_exchange exchange);

/// How ranks compute a product together: ParallelMethod of exchange.hpp.
typedef int32_t jitgemm_parallel_method;
enum { JITGEMM_PARALLEL_UNFUSED = 0, JITGEMM_PARALLEL_OVERLAPPED = 1, JITGEMM_PARALLEL_ONE_SHOT = 2 };

typedef int32_t jitgemm_overlap;
enum { JITGEMM_OVERLAP_AUTOMATIC = 0, JITGEMM_OVERLAP_NONE = 1 };

/// TensorParallelOptions of tensor_parallel.hpp.
typedef struct jitgemm_tensor_parallel_options {
  size_t size;
  size_t staging_bytes;  ///< of device memory at most, for what other ranks send in one product; SIZE_MAX: any
  /// Until a rank that does not answer, or tunes for longer, counts as lost; of a call, from when the device comes to
  /// it; 0: never.
  double timeout_seconds;
  jitgemm_overlap overlap;  ///< rank 0's, for all
  int32_t reserved;
} jitgemm_tensor_parallel_options;

/// ParallelPlan of tensor_parallel.hpp: times are expected, in microseconds.
typedef struct jitgemm_parallel_plan_info {
  size_t size;
  jitgemm_exchange exchange;
  int32_t overlapped;  ///< flag
  int32_t rank, ranks;
  size_t received_bytes;  ///< by each rank
  size_t staging_bytes;   ///< of device memory that this product needs
  double gemm_us, exchange_us;
  double exposed_us;   ///< of the exchange, what the product does not hide
  double measured_us;  ///< of a call, by all ranks together; 0: not measured
  int32_t one_shot;    ///< flag: all_reduce_d by the library's own kernel in one step, else by NCCL
  int32_t reserved;
} jitgemm_parallel_plan_info;

JITGEMM_C_EXPORT jitgemm_status jitgemm_tensor_parallel_options_init_sized(jitgemm_tensor_parallel_options* options,
                                                                           size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_parallel_plan_info_init_sized(jitgemm_parallel_plan_info* info, size_t size);
static inline jitgemm_status jitgemm_tensor_parallel_options_init(jitgemm_tensor_parallel_options* options) {
  return jitgemm_tensor_parallel_options_init_sized(options, sizeof *options);
}
static inline jitgemm_status jitgemm_parallel_plan_info_init(jitgemm_parallel_plan_info* info) {
  return jitgemm_parallel_plan_info_init_sized(info, sizeof *info);
}

/// One matrix product computed by all ranks of a communicator: TensorParallel of tensor_parallel.hpp. Create, prepare
/// and gemm are collective: all ranks call them, in the same order. The communicator outlives the handle; of the
/// context it keeps what it needs.
typedef struct jitgemm_tensor_parallel jitgemm_tensor_parallel;
/// `options` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tensor_parallel_create(jitgemm_context* context,
                                                               jitgemm_nccl_communicator communicator,
                                                               const jitgemm_tensor_parallel_options* options,
                                                               jitgemm_tensor_parallel** parallel);
/// Not collective; waits for this rank's calls in flight. Before it, each rank synchronises its streams, and all meet,
/// as in a barrier.
JITGEMM_C_EXPORT void jitgemm_tensor_parallel_destroy(jitgemm_tensor_parallel* parallel);
/// Enqueues the product on the stream and returns. Legal in stream capture once prepared.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tensor_parallel_gemm(jitgemm_tensor_parallel* parallel,
                                                             const jitgemm_problem* problem, jitgemm_exchange exchange,
                                                             const jitgemm_operands* operands, jitgemm_stream stream);
/// Chooses on rank 0, for all, compiles and allocates. What the tuning of rank 0's context says is measured by all.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tensor_parallel_prepare(jitgemm_tensor_parallel* parallel,
                                                                const jitgemm_problem* problem,
                                                                jitgemm_exchange exchange);
/// What a call would do; not collective. `product` gets the plan of the rank's own product, for jitgemm_plan_destroy();
/// it and `info` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tensor_parallel_plan(jitgemm_tensor_parallel* parallel,
                                                             const jitgemm_problem* problem, jitgemm_exchange exchange,
                                                             jitgemm_parallel_plan_info* info, jitgemm_plan** product);
/// The same for people, several lines.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tensor_parallel_explain(jitgemm_tensor_parallel* parallel,
                                                                const jitgemm_problem* problem,
                                                                jitgemm_exchange exchange, char* buffer,
                                                                size_t capacity, size_t* needed);
/// JITGEMM_STATUS_PEER_LOST or JITGEMM_STATUS_COMMUNICATOR_FAILED if a call was left behind. Waits for nothing. Where
/// NCCL waits, a call's time-out begins with the first check that finds the device at it; a later one tells.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tensor_parallel_check(jitgemm_tensor_parallel* parallel);
/// Ends the waits of calls in flight and of all later ones. NULL is nothing to end.
JITGEMM_C_EXPORT void jitgemm_tensor_parallel_abort(jitgemm_tensor_parallel* parallel);

/* -------------------------------------------------------------------------------------------------------- tuning */

/// The configurations that are worth a measurement, best predicted first.
typedef struct jitgemm_candidates jitgemm_candidates;
JITGEMM_C_EXPORT jitgemm_status jitgemm_candidates_create(jitgemm_context* context, const jitgemm_problem* problem,
                                                          jitgemm_candidates** candidates);
JITGEMM_C_EXPORT void jitgemm_candidates_destroy(jitgemm_candidates* candidates);
JITGEMM_C_EXPORT jitgemm_status jitgemm_candidates_count(const jitgemm_candidates* candidates, size_t* count);
/// One of them as a plan of its own: what it launches is that configuration, and its source says who proposed it.
JITGEMM_C_EXPORT jitgemm_status jitgemm_candidates_plan(const jitgemm_candidates* candidates, size_t index,
                                                        jitgemm_plan** plan);

/// What a measurement found: TuneReport of plan.hpp.
typedef struct jitgemm_tune_report jitgemm_tune_report;
/// Measures now, whatever the tuning mode and stored results, and stores the winner. `progress` and `report` may be
/// NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tune(jitgemm_context* context, const jitgemm_problem* problem,
                                             jitgemm_tune_progress progress, void* user, jitgemm_tune_report** report);
JITGEMM_C_EXPORT void jitgemm_tune_report_destroy(jitgemm_tune_report* report);

typedef struct jitgemm_tuned_candidate {
  size_t size;
  double predicted_us, measured_us, spread;
} jitgemm_tuned_candidate;
JITGEMM_C_EXPORT jitgemm_status jitgemm_tuned_candidate_init_sized(jitgemm_tuned_candidate* candidate, size_t size);
static inline jitgemm_status jitgemm_tuned_candidate_init(jitgemm_tuned_candidate* candidate) {
  return jitgemm_tuned_candidate_init_sized(candidate, sizeof *candidate);
}

JITGEMM_C_EXPORT jitgemm_status jitgemm_tune_report_seconds(const jitgemm_tune_report* report, double* seconds);
/// The winner, as a plan of the problem: it pins nothing.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tune_report_plan(const jitgemm_tune_report* report, jitgemm_plan** plan);
/// Candidates are in the order of the cost model.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tune_report_count(const jitgemm_tune_report* report, size_t* count);
/// `config` and `candidate` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tune_report_candidate(const jitgemm_tune_report* report, size_t index,
                                                              jitgemm_config* config,
                                                              jitgemm_tuned_candidate* candidate);
/// Why a candidate was not measured or not accepted; "" if it was.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tune_report_skipped(const jitgemm_tune_report* report, size_t index,
                                                            char* buffer, size_t capacity, size_t* needed);

/* ------------------------------------------------------------------------------------------------ cache and wisdom */

// Texts in the structs below belong to the handle that they came from, and are "" where there is nothing to say. What
// comes of a call may be NULL where it says so, if it is of no interest.

/// Tuning results: TuningResult of cache.hpp.
typedef struct jitgemm_tuning_results jitgemm_tuning_results;
typedef struct jitgemm_tuning_result {
  size_t size;
  jitgemm_constraints constraints;
  const char* device;        ///< its name: "NVIDIA H200"
  const char* architecture;  ///< "sm_90a"
  const char* date;          ///< of the measurement: "2026-11-21"
  const char* library;       ///< the version of jitgemm that measured
  const char* candidates;    ///< a digest of what was measured; "" in old results
  double median_us;
  double spread;  ///< (p90 - p10) / median
  size_t runner_up_count;
  int32_t sm_count;
  int32_t emulated;  ///< flag
  int32_t ranks;     ///< that compute it together; 1: what jitgemm_gemm() does
  // Of several ranks:
  jitgemm_exchange exchange;
  jitgemm_parallel_method method;  ///< that has the configuration
  int32_t reserved_word;
} jitgemm_tuning_result;
JITGEMM_C_EXPORT jitgemm_status jitgemm_tuning_result_init_sized(jitgemm_tuning_result* result, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_tuning_results_count(const jitgemm_tuning_results* results, size_t* count);
/// `problem`, `config` and `result` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tuning_results_get(const jitgemm_tuning_results* results, size_t index,
                                                           jitgemm_problem* problem, jitgemm_config* config,
                                                           jitgemm_tuning_result* result);
/// `config` and `median_us` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tuning_results_runner_up(const jitgemm_tuning_results* results, size_t index,
                                                                 size_t runner_up, jitgemm_config* config,
                                                                 double* median_us);
/// One object, in a line.
JITGEMM_C_EXPORT jitgemm_status jitgemm_tuning_results_json(const jitgemm_tuning_results* results, size_t index,
                                                            char* buffer, size_t capacity, size_t* needed);
JITGEMM_C_EXPORT void jitgemm_tuning_results_destroy(jitgemm_tuning_results* results);  ///< not of what others own

/// Compiled kernels on disk: CachedKernel of cache.hpp.
typedef struct jitgemm_cached_kernels jitgemm_cached_kernels;
typedef struct jitgemm_cached_kernel {
  size_t size;
  const char* digest;        ///< 32 hex digits
  const char* path;          ///< of its file
  const char* fault;         ///< what is wrong with it; "" if nothing is
  const char* entry;         ///< the name of its function
  const char* architecture;  ///< "sm_90a"
  const char* config;        ///< what of a configuration is compiled in; or "packing"
  const char* compiler;      ///< name and version: "nvrtc 13.0.88"
  uint64_t bytes;
  int64_t last_used;  ///< seconds since 1970; up to a minute late
  int32_t read_only;  ///< flag: of JITGEMM_SYSTEM_CACHE_DIR
  int32_t registers;  ///< a thread
  int32_t spill_bytes;
  int32_t reserved_word;
} jitgemm_cached_kernel;
JITGEMM_C_EXPORT jitgemm_status jitgemm_cached_kernel_init_sized(jitgemm_cached_kernel* kernel, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_cached_kernels_count(const jitgemm_cached_kernels* kernels, size_t* count);
JITGEMM_C_EXPORT jitgemm_status jitgemm_cached_kernels_get(const jitgemm_cached_kernels* kernels, size_t index,
                                                           jitgemm_cached_kernel* kernel);
JITGEMM_C_EXPORT void jitgemm_cached_kernels_destroy(jitgemm_cached_kernels* kernels);

/// Kernels and tuning results on disk: Cache of cache.hpp.
typedef struct jitgemm_cache jitgemm_cache;
/// NULL: the default directory, which is made. JITGEMM_STATUS_IO if one that is named is not there.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_create(const char* directory, jitgemm_cache** cache);
JITGEMM_C_EXPORT void jitgemm_cache_destroy(jitgemm_cache* cache);
/// As a full path; "" if it cannot be used.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_directory(const jitgemm_cache* cache, char* buffer, size_t capacity,
                                                        size_t* needed);
/// What contexts hold the kernels to.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_max_bytes(const jitgemm_cache* cache, uint64_t* bytes);
/// Last used first. Reads no more of a kernel than its head: some faults only jitgemm_cache_verify() sees.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_kernels(const jitgemm_cache* cache, jitgemm_cached_kernels** kernels);
/// The same, each read whole and checked.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_verify(const jitgemm_cache* cache, jitgemm_cached_kernels** kernels);
/// Removes damaged kernels, then the least recently used until `max_bytes` at most are left; UINT64_MAX: the damaged
/// alone. `freed_bytes` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_prune(jitgemm_cache* cache, uint64_t max_bytes, uint64_t* freed_bytes);
/// Removes all kernels. Tuning results stay. `freed_bytes` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_clear(jitgemm_cache* cache, uint64_t* freed_bytes);
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_tuning_results(const jitgemm_cache* cache,
                                                             jitgemm_tuning_results** results);

/// What an export did: CacheExport of cache.hpp.
typedef struct jitgemm_cache_export jitgemm_cache_export;
typedef struct jitgemm_cache_export_info {
  size_t size;
  size_t kernels;         ///< copied
  const char* directory;  ///< the folder, as a full path
  const char* remark;     ///< what keeps others from using exported kernels; "" if nothing does
} jitgemm_cache_export_info;
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_export_info_init_sized(jitgemm_cache_export_info* info, size_t size);
/// Copies the whole kernels to a folder for all users to read. `done` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_export_kernels(const jitgemm_cache* cache, const char* folder,
                                                             jitgemm_cache_export** done);
/// Each as two files instead, binary and source. `done` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_export_binaries(const jitgemm_cache* cache, const char* folder,
                                                              jitgemm_cache_export** done);
JITGEMM_C_EXPORT jitgemm_status jitgemm_cache_export_get_info(const jitgemm_cache_export* done,
                                                              jitgemm_cache_export_info* info);
JITGEMM_C_EXPORT void jitgemm_cache_export_destroy(jitgemm_cache_export* done);

/// What a machine has learned, in a file or a cache: Wisdom of wisdom.hpp.
typedef struct jitgemm_wisdom jitgemm_wisdom;
typedef struct jitgemm_wisdom_info {
  size_t size;
  const char* library;                                       ///< the version of jitgemm that wrote it
  size_t kernels;                                            ///< for jitgemm_wisdom_get_kernel()
  size_t foreign_results, foreign_kernels, strange_kernels;  ///< left out
} jitgemm_wisdom_info;
typedef struct jitgemm_wisdom_kernel {
  size_t size;
  const char* digest;
  const char* architecture;  ///< "sm_90a"
  uint64_t bytes;
  int32_t current;  ///< flag; 0: of other templates, so this version of jitgemm will not ask for it
  int32_t reserved_word;
} jitgemm_wisdom_kernel;
/// Sets *take to 1 for a result that is wanted; it is 0. Texts are valid until it returns. Nonzero ends the call with
/// JITGEMM_STATUS_INTERRUPTED.
typedef int (*jitgemm_wisdom_filter)(void* user, const jitgemm_problem* problem, const jitgemm_config* config,
                                     const jitgemm_tuning_result* result, int32_t* take);
/// Which of a machine's wisdom: WisdomSelection of wisdom.hpp.
typedef struct jitgemm_wisdom_selection {
  size_t size;
  const char* cache_dir;         ///< NULL: the default one
  const char* architecture;      ///< "sm_90a": of GPUs alone, not emulated ones; NULL: all
  jitgemm_wisdom_filter filter;  ///< of tuning results, and of the kernels that they use; NULL: all
  void* filter_user;
  int32_t kernels;  ///< flag; 0: tuning results only
  int32_t reserved_word;
} jitgemm_wisdom_selection;
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_info_init_sized(jitgemm_wisdom_info* info, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_kernel_init_sized(jitgemm_wisdom_kernel* kernel, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_selection_init_sized(jitgemm_wisdom_selection* selection, size_t size);

/// Of the cache directory and of the system's. NULL selects all.
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_cached(const jitgemm_wisdom_selection* selection,
                                                      jitgemm_wisdom** wisdom);
/// Writes that to a file, whole or not at all, over an older one. `written` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_export(const char* file, const jitgemm_wisdom_selection* selection,
                                                      jitgemm_wisdom** written);
/// Reads a file whole and checks it.
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_read(const char* file, jitgemm_wisdom** wisdom);
/// Makes one file of `count` others. `written` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_merge(const char* file, const char* const* from, size_t count,
                                                     jitgemm_wisdom** written);
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_get_info(const jitgemm_wisdom* wisdom, jitgemm_wisdom_info* info);
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_get_kernel(const jitgemm_wisdom* wisdom, size_t index,
                                                          jitgemm_wisdom_kernel* kernel);
/// The wisdom's own: they go with it. NULL of NULL.
JITGEMM_C_EXPORT const jitgemm_tuning_results* jitgemm_wisdom_results(const jitgemm_wisdom* wisdom);
JITGEMM_C_EXPORT void jitgemm_wisdom_destroy(jitgemm_wisdom* wisdom);  ///< not of what others own

/// WisdomImportOptions of wisdom.hpp.
typedef struct jitgemm_wisdom_import_options {
  size_t size;
  const char* cache_dir;  ///< NULL: the default one
  int32_t kernels;        ///< flag: takes kernels too, from whom you trust: they are code that runs on your GPU
  int32_t reserved_word;
} jitgemm_wisdom_import_options;
/// WisdomImport of wisdom.hpp.
typedef struct jitgemm_wisdom_import jitgemm_wisdom_import;
typedef struct jitgemm_wisdom_import_info {
  size_t size;
  size_t results, kernels;  ///< taken; of the others there were as good ones, or better
  size_t kernels_left_out;  ///< since jitgemm_wisdom_import_options.kernels is 0
  const char* directory;    ///< that took them
} jitgemm_wisdom_import_info;
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_import_options_init_sized(jitgemm_wisdom_import_options* options,
                                                                         size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_import_info_init_sized(jitgemm_wisdom_import_info* info, size_t size);
/// Adds what is new, or better, to what this machine knows. NULL options are the defaults; `done` may be NULL.
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_import_files(const char* const* files, size_t count,
                                                            const jitgemm_wisdom_import_options* options,
                                                            jitgemm_wisdom_import** done);
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_import_get_info(const jitgemm_wisdom_import* done,
                                                               jitgemm_wisdom_import_info* info);
/// What the files have, merged: the import's own. NULL of NULL.
JITGEMM_C_EXPORT const jitgemm_wisdom* jitgemm_wisdom_import_wisdom(const jitgemm_wisdom_import* done);
JITGEMM_C_EXPORT void jitgemm_wisdom_import_destroy(jitgemm_wisdom_import* done);

/// How two files differ: WisdomDiff of wisdom.hpp.
typedef struct jitgemm_wisdom_diff jitgemm_wisdom_diff;
typedef struct jitgemm_wisdom_diff_info {
  size_t size;
  size_t same;  ///< tuning results
  size_t kernels_only_a, kernels_only_b, kernels_same;
  int32_t equal;  ///< flag: in what they choose
  int32_t reserved_word;
} jitgemm_wisdom_diff_info;
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_diff_info_init_sized(jitgemm_wisdom_diff_info* info, size_t size);
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_diff_create(const char* a, const char* b, jitgemm_wisdom_diff** diff);
JITGEMM_C_EXPORT jitgemm_status jitgemm_wisdom_diff_get_info(const jitgemm_wisdom_diff* diff,
                                                             jitgemm_wisdom_diff_info* info);
/// The diff's own. Those that differ are of one problem and device, at one index of both lists. NULL of NULL.
JITGEMM_C_EXPORT const jitgemm_tuning_results* jitgemm_wisdom_diff_only_a(const jitgemm_wisdom_diff* diff);
JITGEMM_C_EXPORT const jitgemm_tuning_results* jitgemm_wisdom_diff_only_b(const jitgemm_wisdom_diff* diff);
JITGEMM_C_EXPORT const jitgemm_tuning_results* jitgemm_wisdom_diff_differ_a(const jitgemm_wisdom_diff* diff);
JITGEMM_C_EXPORT const jitgemm_tuning_results* jitgemm_wisdom_diff_differ_b(const jitgemm_wisdom_diff* diff);
JITGEMM_C_EXPORT void jitgemm_wisdom_diff_destroy(jitgemm_wisdom_diff* diff);

static inline jitgemm_status jitgemm_tuning_result_init(jitgemm_tuning_result* result) {
  return jitgemm_tuning_result_init_sized(result, sizeof *result);
}
static inline jitgemm_status jitgemm_cached_kernel_init(jitgemm_cached_kernel* kernel) {
  return jitgemm_cached_kernel_init_sized(kernel, sizeof *kernel);
}
static inline jitgemm_status jitgemm_cache_export_info_init(jitgemm_cache_export_info* info) {
  return jitgemm_cache_export_info_init_sized(info, sizeof *info);
}
static inline jitgemm_status jitgemm_wisdom_info_init(jitgemm_wisdom_info* info) {
  return jitgemm_wisdom_info_init_sized(info, sizeof *info);
}
static inline jitgemm_status jitgemm_wisdom_kernel_init(jitgemm_wisdom_kernel* kernel) {
  return jitgemm_wisdom_kernel_init_sized(kernel, sizeof *kernel);
}
static inline jitgemm_status jitgemm_wisdom_selection_init(jitgemm_wisdom_selection* selection) {
  return jitgemm_wisdom_selection_init_sized(selection, sizeof *selection);
}
static inline jitgemm_status jitgemm_wisdom_import_options_init(jitgemm_wisdom_import_options* options) {
  return jitgemm_wisdom_import_options_init_sized(options, sizeof *options);
}
static inline jitgemm_status jitgemm_wisdom_import_info_init(jitgemm_wisdom_import_info* info) {
  return jitgemm_wisdom_import_info_init_sized(info, sizeof *info);
}
static inline jitgemm_status jitgemm_wisdom_diff_info_init(jitgemm_wisdom_diff_info* info) {
  return jitgemm_wisdom_diff_info_init_sized(info, sizeof *info);
}

#ifdef __cplusplus
}
#endif

#endif
