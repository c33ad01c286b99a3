// The table of ABIs.
#include "backend/collective/mpi/mpi_abi.h"

namespace bs::backend::collective {
namespace {

constexpr const char* kOpenMpiWorld = "ompi_mpi_comm_world";

// Versions 2 to 5.
constexpr auto kOpenMpi = std::to_array<MpiAbi>({
    {.name = "Open MPI",
     .libraries = {"libmpi.so.40", ""},
     .handle = MpiHandle::kPointer,
     .foreign_symbol = nullptr,
     .global_symbols = true,
     .comm_world = {kOpenMpiWorld},
     .comm_self = {"ompi_mpi_comm_self"},
     .errors_return = {"ompi_mpi_errors_return"},
     .sum = {"ompi_mpi_op_sum"},
     .float32 = {"ompi_mpi_float"},
     .float64 = {"ompi_mpi_double"},
     .in_place = 1,
     .status_ignore = 0,
     .undefined = -32766,
     .thread_multiple = 3,
     // Rabenseifner's algorithm (Thakur et al. 2005, section 4.5) sends 2 (W - 1) / W of a sum.
     // By itself MPI_Iallreduce of up to three ranks, and in place, takes a tree: twice as much.
     .tuning = {"OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3"}},
});

constexpr auto kMpich = std::to_array<MpiAbi>({
    // The ABI that MPICH, Intel MPI and MVAPICH have agreed on; Debian calls the library libmpich.
    // Open MPI 1.10 has a libmpi.so.12 too.
    {.name = "MPICH",
     .libraries = {"libmpi.so.12", "libmpich.so.12"},
     .handle = MpiHandle::kInt,
     .foreign_symbol = kOpenMpiWorld,
     .global_symbols = false,
     .comm_world = {nullptr, 0x44000000},
     .comm_self = {nullptr, 0x44000001},
     .errors_return = {nullptr, 0x54000001},
     .sum = {nullptr, 0x58000003},
     .float32 = {nullptr, 0x4c00040a},
     .float64 = {nullptr, 0x4c00080b},
     .in_place = -1,
     .status_ignore = 1,
     .undefined = -32766,
     .thread_multiple = 3},
    // The standard's own, from MPI 5.0 on.
    {.name = "MPI-5",
     .libraries = {"libmpi_abi.so.1", ""},
     .handle = MpiHandle::kPointer,
     .foreign_symbol = nullptr,
     .global_symbols = false,
     .comm_world = {nullptr, 0x101},
     .comm_self = {nullptr, 0x102},
     .errors_return = {nullptr, 0x143},
     .sum = {nullptr, 0x21},
     .float32 = {nullptr, 0x210},
     .float64 = {nullptr, 0x214},
     .in_place = 1,
     .status_ignore = 0,
     .undefined = -32766,
     .thread_multiple = 4096},
});

}  // namespace

std::span<const MpiAbi> OpenMpiAbis() { return kOpenMpi; }

std::span<const MpiAbi> MpichAbis() { return kMpich; }

}  // namespace bs::backend::collective
