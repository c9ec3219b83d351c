/* The page for people at `/`: its three parts, embedded in the binary. Views of constant memory. */
#ifndef TRIBUTARY_ADMIN_PAGE_H
#define TRIBUTARY_ADMIN_PAGE_H

#include "proxy/base/text.h"

struct text admin_page_html(void);
struct text admin_page_script(void); /* /admin_page.js: draws what /stats says */
struct text admin_page_style(void);  /* /admin_page.css */

#endif
