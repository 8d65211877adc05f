#ifndef KML_MATH_CLONES_H
#define KML_MATH_CLONES_H

#include "base/clones.h" /* moved; include that */

#endif
