#include "backend/cuda/tensor_map.hpp"

#include <array>
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
  const RowPairs& pairs = spec.pairs;
  const cuuint64_t pair_stride = pairs.groups > 0 ? cuuint64_t(pairs.stride) * size : stride,
                   group_stride = pairs.groups > 1 ? cuuint64_t(pairs.group_stride) * size : pair_stride;
  struct Dimension {
    cuuint64_t size, stride;  // bytes from the last one to the next
    cuuint32_t box;
  };
  std::array<Dimension, 5> dimensions{
      Dimension{cuuint64_t(spec.inner), 0, cuuint32_t(spec.box_inner)},
      Dimension{cuuint64_t(spec.outer), stride, cuuint32_t(spec.box_outer)},
  };
  cuuint32_t rank = 2;
  const bool in_pairs = pairs.groups > 0;
  if (in_pairs || spec.of_all_addresses) dimensions[rank++] = {in_pairs ? 2u : 1u, pair_stride, in_pairs ? 2u : 1u};
  if (spec.of_all_addresses) {
    dimensions[rank++] = {device::LOW_COUNT, device::LOW_STEP, 1};
    dimensions[rank++] = {device::HIGH_COUNT, device::HIGH_STEP, 1};
  } else {
    if (in_pairs) dimensions[rank++] = {cuuint64_t(pairs.groups), group_stride, cuuint32_t(pairs.box_groups)};
    dimensions[rank++] = {cuuint64_t(spec.batch), batch_stride, 1};
  }
  cuuint64_t sizes[5], strides[4];
  cuuint32_t box[5];
  const cuuint32_t element_strides[] = {1, 1, 1, 1, 1};
  for (cuuint32_t i = 0; i < rank; ++i) {
    sizes[i] = dimensions[i].size;
    box[i] = dimensions[i].box;
    if (i > 0) strides[i - 1] = dimensions[i].stride;
  }
  CUtensorMap encoded;
  const CUresult result = api.tensor_map_encode_tiled(
      &encoded, tensor_map_type(spec.type), rank, const_cast<void*>(spec.address), sizes, strides, box, element_strides,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(spec.box_inner * int(size)), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);  // out of bounds reads as zero
  if (result != CUDA_SUCCESS) {
    throw driver_error(
        api, result, ErrorCode::internal,
        "cuTensorMapEncodeTiled of " + std::to_string(spec.batch) + " x " + std::to_string(spec.outer) + " x " +
            std::to_string(spec.inner) + " (strides " + std::to_string(spec.batch_stride) + ", " +
            std::to_string(spec.stride) + ", box " + std::to_string(spec.box_outer) + " x " +
            std::to_string(spec.box_inner) + ")" +
            (pairs.groups > 0 ? ", rows in pairs, groups " + std::to_string(pairs.groups) + ", strides " +
                                    std::to_string(pairs.group_stride) + ", " + std::to_string(pairs.stride)
                              : ""),
        "use main_loop=sm80 for this problem and report it");
  }
  return std::bit_cast<device::TensorMap>(encoded);
}

}  // namespace jitgemm::cuda
