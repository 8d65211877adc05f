#ifndef KML_DATA_NUMBER_H
#define KML_DATA_NUMBER_H

#include <stdbool.h>

#include "base/buf.h"

/*
 * A decimal number that fills the whole field but for blanks around it: [+-]digits[.digits][e[+-]digits], one
 * digit at least. Never depends on the locale. Exact to the nearest double for up to 15 digits, else within
 * two units of its last place; overflow gives infinity.
 */
bool kml_number_read(struct kml_view field, double *out);

#endif
