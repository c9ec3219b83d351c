/*
 * Making a context reads the files, so that a reload takes new certificates and a wrong key is
 * found by --check. validate.c has seen that the files can be read; what is wrong inside them is
 * told here, by OpenSSL's words.
 */
#include "proxy/config/secure.h"

#include "proxy/base/mem.h"
#include "proxy/net/tls.h"

/* As a C string to free, NULL when empty: that is what net/tls.h takes. */
static char *
path_or_null(struct text path)
{
    return path.len ? text_dup(path) : NULL;
}

static void
make(const struct draft *draft, const struct ini_section *section, bool server, struct text cert,
     struct text key, struct text ca, struct tls_context **context)
{
    char *cert_path = path_or_null(cert), *key_path = path_or_null(key),
         *ca_path = path_or_null(ca);
    struct strbuf why = STRBUF_INIT;
    int status = server ? tls_context_server(cert_path, key_path, ca_path, context, &why)
                        : tls_context_client(ca_path, cert_path, key_path, context, &why);
    if (status < 0)
        draft_complain(draft, section, server ? "tls_cert" : "tls", "%.*s",
                       TEXT_ARGS(strbuf_text(&why)));
    strbuf_fini(&why);
    mem_free(cert_path);
    mem_free(key_path);
    mem_free(ca_path);
}

void
secure(const struct draft *draft)
{
    struct snapshot *snapshot = draft->snapshot;
    for (unsigned i = 0; i < snapshot->listener_count; i++) {
        struct listener_conf *listener = &snapshot->listeners[i];
        if (listener->tls_cert.len)
            make(draft, draft->listeners[i], true, listener->tls_cert, listener->tls_key,
                 listener->tls_client_ca, &listener->tls);
    }
    for (unsigned i = 0; i < snapshot->upstream_count; i++) {
        struct upstream_conf *upstream = &snapshot->upstreams[i];
        if (upstream->tls_on)
            make(draft, draft->upstreams[i], false, upstream->tls_cert, upstream->tls_key,
                 upstream->tls_ca, &upstream->tls);
    }
}
