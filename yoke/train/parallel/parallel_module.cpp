#include "yoke/train/parallel/parallel_module.h"

#include "yoke/dist/group.h"

namespace yoke::train {

void ParallelModule::explain(std::exception_ptr error) const { group().explain(std::move(error)); }

}  // namespace yoke::train
