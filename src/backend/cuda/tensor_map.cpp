#include "backend/cuda/tensor_map.hpp"

#include <bit>

namespace jitgemm::cuda {
namespace {

CUtensorMapDataType tensor_map_type(DataType type) {
  // Bytes are copied as they are: wgmma drops what tf32 does not have.
  switch (bits_of(type)) {
    case 8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case 16:
      return type == bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case 32:
      return type == s32 ? CU_TENSOR_MAP_DATA_TYPE_INT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case 64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
  }
  throw Error(ErrorCode::internal, "a data type that TMA does not copy");
}

CUtensorMapSwizzle swizzle_of(int box_bytes) {
  switch (box_bytes) {
    case 16:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  throw Error(ErrorCode::internal, "a TMA box of " + std::to_string(box_bytes) + " bytes");
}

}  // namespace

device::TensorMap encode_tensor_map(const DriverApi& api, const TensorMapSpec& spec) {
  const cuuint64_t size = size_of(spec.type);
  // Bytes. Of one row, and of one matrix, it does not matter, but must be legal.
  const cuuint64_t stride =
      spec.outer > 1 ? cuuint64_t(spec.stride) * size : (cuuint64_t(spec.inner) * size + 15) / 16 * 16;
  const cuuint64_t batch_stride = spec.batch > 1 ? cuuint64_t(spec.batch_stride) * size : stride;
  const cuuint64_t sizes[] = {cuuint64_t(spec.inner), cuuint64_t(spec.outer), cuuint64_t(spec.batch)};
  const cuuint64_t strides[] = {stride, batch_stride};
  const cuuint32_t box[] = {cuuint32_t(spec.box_inner), cuuint32_t(spec.box_outer), 1};
  const cuuint32_t element_strides[] = {1, 1, 1};
  CUtensorMap encoded;
  const CUresult result = api.tensor_map_encode_tiled(
      &encoded, tensor_map_type(spec.type), 3, const_cast<void*>(spec.address), sizes, strides, box, element_strides,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(spec.box_inner * int(size)), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);  // out of bounds reads as zero
  if (result != CUDA_SUCCESS) {
    throw driver_error(api, result, ErrorCode::internal,
                       "cuTensorMapEncodeTiled of " + std::to_string(spec.batch) + " x " + std::to_string(spec.outer) +
                           " x " + std::to_string(spec.inner) + " (strides " + std::to_string(spec.batch_stride) +
                           ", " + std::to_string(spec.stride) + ", box " + std::to_string(spec.box_outer) + " x " +
                           std::to_string(spec.box_inner) + ")",
                       "use main_loop=sm80 for this problem and report it");
  }
  return std::bit_cast<device::TensorMap>(encoded);
}

}  // namespace jitgemm::cuda
