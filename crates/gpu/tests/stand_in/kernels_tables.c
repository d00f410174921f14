// The kernels that look up in tables.

#define TABLES
#define FORM WITH_TABLES
#define FORM_PTX PTX_TABLES
#define main main_with_tables
#include "kernels.c"
