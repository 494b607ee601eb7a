#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/typing.h>

#include "bindings.hpp"
#include "settings.hpp"
#include "tensor_parallel.hpp"

namespace jitgemm::python {
namespace {

using namespace nb::literals;

Overlap overlap_of(nb::handle overlap) {
  std::string_view text;
  const bool is_text = nb::try_cast(overlap, text);
  if (is_text && text == "automatic") return Overlap::automatic;
  if (is_text && text == "none") return Overlap::none;
  const std::string message = "overlap is " + nb::cast<std::string>(nb::repr(overlap)).substr(0, 80) +
                              "; choose one of \"automatic\", \"none\"";
  if (is_text) throw nb::value_error(message.c_str());
  throw nb::type_error(message.c_str());
}

std::size_t staging_bytes_of(nb::handle bytes) {
  if (bytes.is_none()) return TensorParallelOptions{}.staging_bytes;
  std::size_t value = 0;
  if (!PyBool_Check(bytes.ptr()) && nb::try_cast(bytes, value)) return value;
  throw nb::type_error("staging_bytes is no number of bytes; pass an integer, or None for as many as it takes");
}

// Those of matmul() that are served across ranks.
#define JITGEMM_RANK_ARGUMENTS                                                                                    \
  nb::kw_only(), "c"_a = nb::none(), "alpha"_a = 1.0, "beta"_a = nb::none(), "bias"_a = nb::none(),               \
                 "activation"_a = nb::none(), "slope"_a = 0.01, "out"_a = nb::none(), "out_dtype"_a = nb::none(), \
                 "precision"_a = nb::none(), "accumulation"_a = nb::none(), "scale_a"_a = nb::none(),             \
                 "scale_b"_a = nb::none(), "scale_d"_a = nb::none(), "stream"_a = nb::none()
#define JITGEMM_RANK_SIGNATURE                                                                               \
  "*, c: Array | None = None, alpha: float = 1.0, beta: float | None = None, bias: Array | None = None, "    \
  "activation: str | None = None, slope: float = 0.01, out: Array | None = None, out_dtype: object = None, " \
  "precision: str | None = None, accumulation: str | None = None, scale_a: Array | float | None = None, "    \
  "scale_b: Array | float | None = None, scale_d: Array | None = None, stream: object = None"

MatmulArguments arguments_of(nb::handle a, nb::handle b, nb::handle c, nb::handle alpha, nb::handle beta,
                             nb::handle bias, nb::handle activation, nb::handle slope, nb::handle out,
                             nb::handle out_dtype, nb::handle precision, nb::handle accumulation, nb::handle scale_a,
                             nb::handle scale_b, nb::handle scale_d, nb::handle stream) {
  return {.a = a,
          .b = b,
          .c = c,
          .alpha = number_of(alpha, "alpha"),
          .beta = beta,
          .bias = bias,
          .activation = activation,
          .slope = number_of(slope, "slope"),
          .out = out,
          .out_dtype = out_dtype,
          .precision = precision,
          .accumulation = accumulation,
          .scale_a = scale_a,
          .scale_b = scale_b,
          .scale_d = scale_d,
          .stream = stream};
}

/// A method that multiplies.
template <Exchange exchange>
nb::object multiply(TensorParallelHandle& self, nb::handle a, nb::handle b, nb::handle c, nb::handle alpha,
                    nb::handle beta, nb::handle bias, nb::handle activation, nb::handle slope, nb::handle out,
                    nb::handle out_dtype, nb::handle precision, nb::handle accumulation, nb::handle scale_a,
                    nb::handle scale_b, nb::handle scale_d, nb::handle stream) {
  return self.multiply(arguments_of(a, b, c, alpha, beta, bias, activation, slope, out, out_dtype, precision,
                                    accumulation, scale_a, scale_b, scale_d, stream),
                       exchange);
}

/// A method that is asked about one of those.
template <auto method>
auto asked(TensorParallelHandle& self, nb::handle exchange, nb::handle a, nb::handle b, nb::handle c, nb::handle alpha,
           nb::handle beta, nb::handle bias, nb::handle activation, nb::handle slope, nb::handle out,
           nb::handle out_dtype, nb::handle precision, nb::handle accumulation, nb::handle scale_a, nb::handle scale_b,
           nb::handle scale_d, nb::handle stream) {
  const Exchange asked_for = exchange_named(exchange);
  return (self.*method)(arguments_of(a, b, c, alpha, beta, bias, activation, slope, out, out_dtype, precision,
                                     accumulation, scale_a, scale_b, scale_d, stream),
                        asked_for);
}

void bind_parallel_plan(nb::module_& module) {
  nb::class_<ParallelPlan>(module, "ParallelPlan",
                           "How a product across ranks is computed, and what it moves. Times are expected ones, in "
                           "microseconds.")
      .def_ro("gemm", &ParallelPlan::gemm, "Of the rank's own product.")
      .def_prop_ro(
          "exchange", [](const ParallelPlan& plan) { return name_of(plan.exchange); }, "The method of TensorParallel.")
      .def_ro("overlapped", &ParallelPlan::overlapped,
              "Whether communication runs under the product; else one comes after the other.")
      .def_ro("one_shot", &ParallelPlan::one_shot,
              "Whether sums that all ranks get are added up by the library's own kernel in one step; else by NCCL.")
      .def_ro("why", &ParallelPlan::why)
      .def_ro("rank", &ParallelPlan::rank)
      .def_ro("ranks", &ParallelPlan::ranks)
      .def_ro("received_bytes", &ParallelPlan::received_bytes, "By each rank.")
      .def_ro("staging_bytes", &ParallelPlan::staging_bytes, "Of device memory that this product needs.")
      .def_ro("gemm_us", &ParallelPlan::gemm_us, "Of the product alone.")
      .def_ro("exchange_us", &ParallelPlan::exchange_us, "Of the exchange alone.")
      .def_ro("exposed_us", &ParallelPlan::exposed_us, "Of the exchange, what the product does not hide.")
      .def_ro("measured_us", &ParallelPlan::measured_us, "Of a call, by all ranks together; 0.0: not measured.")
      .def("explain", &ParallelPlan::explain, "All there is to say, for people, several lines.")
      .def("__repr__", [](const ParallelPlan& plan) {
        return "<jitgemm.ParallelPlan of " + std::string(name_of(plan.exchange)) + ", rank " +
               std::to_string(plan.rank) + " of " + std::to_string(plan.ranks) +
               (plan.overlapped ? ", overlapped>"
                : plan.one_shot ? ", in one shot>"
                                : ", not overlapped>");
      });
}

void bind_products(nb::class_<TensorParallelHandle>& parallel) {
  parallel
      .def("all_gather_matmul", &multiply<Exchange::all_gather_a>, nb::arg("a").none(), nb::arg("b").none(),
           JITGEMM_RANK_ARGUMENTS,
           nb::sig("def all_gather_matmul(self, a: Array, b: Array, " JITGEMM_RANK_SIGNATURE ") -> Array"),
           R"(all ranks' a, one below the other, @ b: a layer that is split by columns, with its input split by rows.

a       (rows, K), this rank's; (rows, ..., K) where its rows follow each other. Alike on all ranks.
b       (K, N), this rank's columns of the weight.
Returns (ranks * rows, N), or (ranks * rows, ..., N); so are c and out, and bias is (N,) or (ranks * rows, 1).

Collective. The other arguments are matmul()'s, and scale_a and scale_b one number or float32; all ranks pass the same
scale_a. Asynchronous on CUDA devices. Computed past torch's operators: tensors that require gradients are refused
outside torch.no_grad() and an autograd.Function's own methods.)")
      .def(
          "matmul_reduce_scatter", &multiply<Exchange::reduce_scatter_d>, nb::arg("a").none(), nb::arg("b").none(),
          JITGEMM_RANK_ARGUMENTS,
          nb::sig("def matmul_reduce_scatter(self, a: Array, b: Array, " JITGEMM_RANK_SIGNATURE ") -> Array"),
          R"(This rank's rows of the sum of all ranks' a @ b: a layer that is split by rows, whose output is split by rows.

a       (rows, K), this rank's columns of the input; (rows, ..., K) where its rows follow each other. Rows of all
        ranks: a multiple of them.
b       (K, N), this rank's rows of the weight.
Returns (rows / ranks, N), or (rows / ranks, ..., N); so are c and out, and bias is (N,) or (rows / ranks, 1).

alpha, c, bias, activation and scale_d are applied once, to the sum: all ranks pass the bias. Sums travel as the result's
type, bfloat16 for one of 8 bits. Else as all_gather_matmul(); scale_a and scale_b are this rank's own.)")
      .def("matmul_all_reduce", &multiply<Exchange::all_reduce_d>, nb::arg("a").none(), nb::arg("b").none(),
           JITGEMM_RANK_ARGUMENTS,
           nb::sig("def matmul_all_reduce(self, a: Array, b: Array, " JITGEMM_RANK_SIGNATURE ") -> Array"),
           "All rows of the sum of all ranks' a @ b, (rows, N), of any number of rows; else as "
           "matmul_reduce_scatter().");
}

}  // namespace

void bind_tensor_parallel(nb::module_& module) {
  bind_parallel_plan(module);
  nb::class_<TensorParallelHandle> parallel(module, "TensorParallel",
                                            R"(Matrix products that all ranks of an NCCL communicator compute together.

    torch.distributed.init_process_group("nccl")
    parallel = jitgemm.TensorParallel(torch.distributed.group.WORLD)
    hidden = parallel.all_gather_matmul(x, up, activation="gelu")     # split by columns
    y = parallel.matmul_reduce_scatter(hidden, down, bias=bias)       # split by rows

communicator     a process group of torch's with NCCL, or an ncclComm_t as an integer. It must outlive this: close()
                 comes before destroy_process_group(). Before close() each rank synchronises, and all meet, as in
                 torch.distributed.barrier(): others' calls use what a rank frees.
context          default: the one of the communicator's device.
overlap          "automatic": communication runs under the product where that is expected to be faster; "none":
                 NCCL's collective before or after the product.
staging_bytes    of device memory at most, for what other ranks send; default: as many as it takes.
timeout_seconds  until a rank that does not answer counts as lost, of a call from when the device comes to it; 0: never.

To make one, to multiply and to prepare() are collective: all ranks do it in the same order, as NCCL's collectives. A
call with a new problem waits for the other ranks; Python's other threads run meanwhile. RuntimeError with the code
"peer_lost" or "communicator_failed" when a rank does not answer or NCCL fails, and from then on. As a context
manager it is closed at the end, after abort() where an exception leaves.)",
                                            nb::is_weak_referenceable());
  parallel.def(
      "__init__",
      [](TensorParallelHandle* self, nb::handle communicator, nb::handle context, nb::handle overlap,
         nb::handle staging_bytes, nb::handle timeout_seconds) {
        const TensorParallelOptions options{.overlap = overlap_of(overlap),
                                            .staging_bytes = staging_bytes_of(staging_bytes),
                                            .timeout_seconds = number_of(timeout_seconds, "timeout_seconds")};
        new (self) TensorParallelHandle(communicator, context, options);
      },
      nb::arg("communicator").none(), nb::kw_only(), "context"_a = nb::none(), "overlap"_a.none() = "automatic",
      "staging_bytes"_a = nb::none(), "timeout_seconds"_a.none() = 60.0,
      nb::sig("def __init__(self, communicator: object, *, context: Context | None = None, overlap: str = "
              "\"automatic\", staging_bytes: int | None = None, timeout_seconds: float = 60.0) -> None"));
  bind_products(parallel);
  parallel
      .def("prepare", &asked<&TensorParallelHandle::prepare>, "exchange"_a.none(), nb::arg("a").none(),
           "b"_a = nb::none(), JITGEMM_RANK_ARGUMENTS,
           nb::sig("def prepare(self, exchange: str, a: Array | Problem | str, b: Array | None = "
                   "None, " JITGEMM_RANK_SIGNATURE ") -> None"),
           "Chooses, compiles and allocates for a method with these arguments, or with a Problem whose m is of all\n"
           "rows. Collective. What is prepared may be captured into CUDA graphs.\n\n"
           "exchange: \"all_gather_matmul\", \"matmul_reduce_scatter\" or \"matmul_all_reduce\".")
      .def(
          "plan", &asked<&TensorParallelHandle::plan>, "exchange"_a.none(), nb::arg("a").none(), "b"_a = nb::none(),
          JITGEMM_RANK_ARGUMENTS,
          nb::sig(
              "def plan(self, exchange: str, a: Array | Problem | str, b: Array | None = None, " JITGEMM_RANK_SIGNATURE
              ") -> ParallelPlan"),
          "What a method would do with the arguments of prepare(). Not collective: of what is not prepared, what this\n"
          "rank would choose.")
      .def("check", &TensorParallelHandle::check,
           "Raises what a lost rank, or NCCL, has left behind. Waits for nothing.")
      .def("abort", &TensorParallelHandle::abort,
           "Ends the waits of calls in other threads, and all later calls, by RuntimeError; what they compute counts "
           "for\n"
           "nothing. From any thread. What NCCL itself waits for on the device, ncclCommAbort() ends.")
      .def("close", &TensorParallelHandle::close,
           "Frees what this holds, once calls of other threads and of the device have ended. Twice is no error.")
      .def_prop_ro("closed", &TensorParallelHandle::closed)
      .def_prop_ro("rank", &TensorParallelHandle::rank)
      .def_prop_ro("ranks", &TensorParallelHandle::ranks)
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> TensorParallel"))
      .def(
          "__exit__",
          [](TensorParallelHandle& self, nb::handle type, nb::handle, nb::handle) {
            if (!type.is_none()) self.abort();
            self.close();
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none(),
          nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"))
      .def("__repr__", [](const TensorParallelHandle& self) {
        return "<jitgemm.TensorParallel, rank " + std::to_string(self.rank()) + " of " + std::to_string(self.ranks()) +
               (self.closed() ? ", closed>" : ">");
      });
}

}  // namespace jitgemm::python
