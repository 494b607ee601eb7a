#pragma once

#include <cstdint>

// The part of DLPack 1.3's binary interface that is read here (https://github.com/dmlc/dlpack, dlpack.h). Names are
// that header's.
namespace jitgemm::python::dlpack {

inline constexpr std::uint32_t major_version = 1;

enum DeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };
enum TypeCode : std::uint8_t {
  kDLInt = 0,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12,
};

struct Version {
  std::uint32_t major, minor;
};
struct Device {
  std::int32_t device_type;
  std::int32_t device_id;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; before version 1.2 null for a contiguous tensor
  std::uint64_t byte_offset;
};

/// What a capsule named "dltensor" holds.
struct ManagedTensor {
  Tensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(ManagedTensor*);
};

inline constexpr std::uint64_t flag_read_only = 1;

/// What a capsule named "dltensor_versioned" holds.
struct ManagedTensorVersioned {
  Version version;
  void* manager_ctx;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  Tensor dl_tensor;
};

using SetError = void (*)(void* context, const char* kind, const char* message);

struct ExchangeApiHeader {
  Version version;
  ExchangeApiHeader* prev_api;
};

/// What the capsule `__dlpack_c_exchange_api__` of a tensor's type holds, under the name "dlpack_exchange_api".
/// Functions answer 0, or -1 with a Python exception set.
struct ExchangeApi {
  ExchangeApiHeader header;
  int (*managed_tensor_allocator)(Tensor* prototype, ManagedTensorVersioned** out, void* context, SetError);
  int (*managed_tensor_from_py_object_no_sync)(void* object, ManagedTensorVersioned** out);
  int (*managed_tensor_to_py_object_no_sync)(ManagedTensorVersioned* tensor, void** out);
  int (*dltensor_from_py_object_no_sync)(void* object, Tensor* out);  // borrowed from the object; may be null
  int (*current_work_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace jitgemm::python::dlpack
