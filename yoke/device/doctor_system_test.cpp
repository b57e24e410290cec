#include "yoke/device/doctor.h"
