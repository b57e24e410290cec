#include "yoke/train/parallel/parallel_module.h"

#include "yoke/dist/world.h"

namespace yoke::train {

void ParallelModule::explain(std::exception_ptr error) const { world().explain(std::move(error)); }

}  // namespace yoke::train
