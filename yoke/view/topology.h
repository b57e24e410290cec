// yoke/view/topology.h -- a machine's topology as text, JSON and a drawing. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/device/topology/connections.h"

namespace yoke::view {

/// One line about the machine, the matrix with a legend, and the NUMA nodes with the devices near them. A matrix wider
/// than `width` columns continues in further blocks.
std::string topology_text(const device::Topology& topology, const device::LinkMatrix& matrix, int64_t width);

/// docs/topo.md describes the format.
nlohmann::ordered_json topology_json(const device::Topology& topology, const device::LinkMatrix& matrix);

/// A drawing for a web page. It has no scripts and no external fonts, and is readable on light and dark backgrounds.
std::string topology_svg(const device::Topology& topology, const device::LinkMatrix& matrix);

/// "AMD EPYC 7A53 64-Core Processor: 1 package, 4 NUMA nodes, 64 cores, 128 CPUs, L3 8 x 32.0 MiB"
std::string machine_line(const device::Topology& topology);

}  // namespace yoke::view
