// yoke/cli/topology_views.h -- a machine's topology as text, JSON and a drawing: pure functions of values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/device/topology/connections.h"

namespace yoke::cli {

/// The machine in a line, the matrix, what its words mean, NUMA nodes with what is beside them. A matrix wider than
/// `width` columns continues in further blocks.
std::string topology_text(const device::Topology& topology, const device::LinkMatrix& matrix, int64_t width);

/// docs/topo.md has the contract.
nlohmann::ordered_json topology_json(const device::Topology& topology, const device::LinkMatrix& matrix);

/// A drawing for a page: no scripts, no fonts from elsewhere, readable on light and dark backgrounds.
std::string topology_svg(const device::Topology& topology, const device::LinkMatrix& matrix);

/// "AMD EPYC 7A53 64-Core Processor: 1 package, 4 NUMA nodes, 64 cores, 128 CPUs, L3 8 x 32.0 MiB"
std::string machine_line(const device::Topology& topology);

}  // namespace yoke::cli
