// Nothing: what a solution uses of cuDNN is refused by its name.
#pragma once
