/*
 * The effective configuration as an INI file: every section and every key in the order of the key
 * table, so that nothing that has a default is left to memory.
 */
#include "proxy/config/assign.h"
#include "proxy/config/config.h"
#include "proxy/config/filter_sections.h"

static void
print_section(enum key_section section, struct text name, const void *values, bool hide_secrets,
              struct strbuf *out)
{
    strbuf_addf(out, "%s[%s%s%.*s]\n", section == SECTION_PROXY ? "" : "\n",
                keys_section_name(section), name.len ? " " : "", TEXT_ARGS(name));
    for (unsigned i = 0; i < keys_count; i++)
        if (keys_table[i].section == section)
            assign_print(&keys_table[i], values, hide_secrets, out);
}

void
config_print(const struct snapshot *snapshot, bool hide_secrets, struct strbuf *out)
{
    print_section(SECTION_PROXY, TEXT_NONE, &snapshot->proxy, hide_secrets, out);
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        print_section(SECTION_LISTENER, snapshot->listeners[i].name, &snapshot->listeners[i],
                      hide_secrets, out);
    for (unsigned i = 0; i < snapshot->upstream_count; i++)
        print_section(SECTION_UPSTREAM, snapshot->upstreams[i].name, &snapshot->upstreams[i],
                      hide_secrets, out);
    for (unsigned i = 0; i < snapshot->filter_count; i++) {
        strbuf_addf(out, "\n[filter %.*s]\n", TEXT_ARGS(snapshot->filters[i].name));
        filter_sections_print(&snapshot->filters[i], out);
    }
    for (unsigned i = 0; i < snapshot->route_count; i++)
        print_section(SECTION_ROUTE, snapshot->routes[i].name, &snapshot->routes[i], hide_secrets,
                      out);
}
