/*
 * The page's files (admin_page.html, .js, .css beside this one) as they are, in the binary's
 * read-only data: no outside asset, nothing to install.
 *
 * ADMIN_PAGE_DIR comes from the build, which also rebuilds this file when one of the three changes.
 */
#include "proxy/admin_page.h"

#define EMBED(symbol, file)                                                                        \
    __asm__(".section .rodata\n" #symbol ":\n.incbin \"" ADMIN_PAGE_DIR "/" file "\"\n" #symbol    \
            "_end:\n.byte 0\n.previous\n");                                                        \
    extern const char symbol[] __attribute__((visibility("hidden")));                              \
    extern const char symbol##_end[] __attribute__((visibility("hidden")))

EMBED(admin_page_html_bytes, "admin_page.html");
EMBED(admin_page_script_bytes, "admin_page.js");
EMBED(admin_page_style_bytes, "admin_page.css");

struct text
admin_page_html(void)
{
    return text_make(admin_page_html_bytes,
                     (size_t)(admin_page_html_bytes_end - admin_page_html_bytes));
}

struct text
admin_page_script(void)
{
    return text_make(admin_page_script_bytes,
                     (size_t)(admin_page_script_bytes_end - admin_page_script_bytes));
}

struct text
admin_page_style(void)
{
    return text_make(admin_page_style_bytes,
                     (size_t)(admin_page_style_bytes_end - admin_page_style_bytes));
}
