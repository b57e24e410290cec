// yoke/dist/detail/outside.h -- backends of a rank that has no connection to others.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>

namespace c10d {
class Backend;
}

namespace yoke::dist {

/// For a rank that takes the place of a lost one, until it joins the others: the collectives that programs and yoke use
/// before a training end at once, as if all ranks had given the same as this one. Others are refused.
c10::intrusive_ptr<c10d::Backend> outside_backend(int64_t rank, int64_t size);

/// Refuses every collective. In place of Gloo, which does what is rare, once ranks were replaced.
c10::intrusive_ptr<c10d::Backend> refusing_backend(int64_t rank, int64_t size);

}  // namespace yoke::dist
