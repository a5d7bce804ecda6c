#pragma once
#include <THC/THC.h>
