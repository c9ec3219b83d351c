/*
 * TLS by OpenSSL. A session's BIO is our own: it reads from the bytes of the running read callback
 * and writes into the session's wire queue, so that nothing is copied twice and no memory BIO lives
 * between turns.
 *
 * Happy path: tls_feed -> tls_read until 0 -> (handshake records and ciphertext are in tls_wire) ->
 * tls_encrypt at flush. Failure modes: OpenSSL's queue of errors is thread-local and emptied before
 * each call that is judged by it.
 */
#include "proxy/net/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>

#include "proxy/base/check.h"
#include "proxy/base/mem.h"

struct tls_context {
    atomic_uint refs;
    bool server;
    SSL_CTX *ssl;
};

struct tls_session {
    struct tls_context *context; /* a reference */
    struct slab *slab;
    SSL *ssl;
    struct outbuf wire;
    const uint8_t *input; /* what is left of tls_feed()'s bytes */
    size_t input_bytes;
    char alpn[16];
    bool said_goodbye;
};

/* What servers take, in order of preference, as length-prefixed names (RFC 7301). */
static const unsigned char alpn_names[] = "\x02h2\x08http/1.1";

enum { ALPN_BYTES = sizeof alpn_names - 1 };

/* ---- the BIO ---- */

static int
on_bio_write(BIO *bio, const char *data, size_t len, size_t *written)
{
    struct tls_session *session = BIO_get_data(bio);
    outbuf_add(&session->wire, data, len);
    *written = len;
    return 1;
}

static int
on_bio_read(BIO *bio, char *into, size_t len, size_t *got)
{
    struct tls_session *session = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *got = len < session->input_bytes ? len : session->input_bytes;
    if (*got == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(into, session->input, *got);
    session->input += *got;
    session->input_bytes -= *got;
    return 1;
}

static long
on_bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH; /* all others: not supported, 0 */
}

static BIO_METHOD *bio_method;

/* Made with the first context, while the configuration is loaded by one thread; lives as long as
 * the process. */
static void
make_bio_method(void)
{
    if (bio_method)
        return;
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tributary");
    check(bio_method);
    BIO_meth_set_write_ex(bio_method, on_bio_write);
    BIO_meth_set_read_ex(bio_method, on_bio_read);
    BIO_meth_set_ctrl(bio_method, on_bio_ctrl);
}

/* ---- contexts ---- */

static int
on_ssl_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
            const unsigned char *offered, unsigned int offered_bytes, void *unused)
{
    (void)ssl, (void)unused;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, alpn_names, ALPN_BYTES, offered, offered_bytes) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL; /* RFC 7301 section 3.2: no_application_protocol */
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* "tls_cert FILE: reason" from OpenSSL's last error; a missing or unreadable file has errno's
 * words. */
static int
file_error(struct strbuf *error, const char *key, const char *file)
{
    unsigned long code = ERR_peek_error();
    const char *reason = ERR_reason_error_string(code);
    int number = EINVAL;
    if (ERR_SYSTEM_ERROR(code)) {
        number = ERR_GET_REASON(code);
        reason = strerror(number);
    } else if ((ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE) ||
               ERR_GET_REASON(code) == ERR_R_UNSUPPORTED) {
        reason = "holds nothing of that kind in PEM form";
    }
    strbuf_addf(error, "%s %s: %s", key, file, reason ? reason : "not usable");
    ERR_clear_error();
    return -number;
}

static int
load_identity(SSL_CTX *ssl, const char *cert, const char *key, struct strbuf *error)
{
    if (!cert && !key)
        return 0;
    if (!cert || !key) {
        strbuf_add_str(error, cert ? "tls_cert without tls_key" : "tls_key without tls_cert");
        return -EINVAL;
    }
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ssl, cert) != 1)
        return file_error(error, "tls_cert", cert);
    if (SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) != 1)
        return file_error(error, "tls_key", key);
    if (SSL_CTX_check_private_key(ssl) != 1)
        return file_error(error, "tls_key", key);
    return 0;
}

/* A key behind a passphrase is an error: nobody sits at a sidecar's terminal. */
static int
on_ssl_passphrase(char *into, int bytes, int writing, void *unused)
{
    (void)into, (void)bytes, (void)writing, (void)unused;
    return -1;
}

static struct tls_context *
context_new(bool server)
{
    struct tls_context *context = mem_new(struct tls_context);
    make_bio_method();
    atomic_init(&context->refs, 1);
    context->server = server;
    context->ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    check(context->ssl);
    SSL_CTX_set_default_passwd_cb(context->ssl, on_ssl_passphrase);
    SSL_CTX_set_min_proto_version(context->ssl, TLS1_2_VERSION);
    /* Buffers of idle connections go back; a connection that vanished without close_notify is an
     * EOF like any other (HTTP lengths tell truncation). */
    SSL_CTX_set_mode(context->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(context->ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                          SSL_OP_IGNORE_UNEXPECTED_EOF);
    /* RFC 9113 section 9.2.2: AEAD with forward secrecy only. */
    check(SSL_CTX_set_cipher_list(context->ssl, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1);
    return context;
}

static int
fail(struct tls_context *context, int error)
{
    tls_context_unref(context);
    return error;
}

int
tls_context_server(const char *cert, const char *key, const char *client_ca,
                   struct tls_context **out, struct strbuf *error)
{
    *out = NULL;
    if (!cert && !key) {
        strbuf_add_str(error, "a TLS listener needs tls_cert and tls_key");
        return -EINVAL;
    }
    struct tls_context *context = context_new(true);
    int code = load_identity(context->ssl, cert, key, error);
    if (code)
        return fail(context, code);
    SSL_CTX_set_alpn_select_cb(context->ssl, on_ssl_alpn, NULL);
    SSL_CTX_set_session_id_context(context->ssl, (const unsigned char *)"tributary", 9);
    if (client_ca) {
        ERR_clear_error();
        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(client_ca);
        if (!names || SSL_CTX_load_verify_file(context->ssl, client_ca) != 1) {
            sk_X509_NAME_pop_free(names, X509_NAME_free);
            return fail(context, file_error(error, "tls_client_ca", client_ca));
        }
        SSL_CTX_set_client_CA_list(context->ssl, names);
        SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    *out = context;
    return 0;
}

int
tls_context_client(const char *ca, const char *cert, const char *key, struct tls_context **out,
                   struct strbuf *error)
{
    *out = NULL;
    struct tls_context *context = context_new(false);
    int code = load_identity(context->ssl, cert, key, error);
    if (code)
        return fail(context, code);
    ERR_clear_error();
    if (ca ? SSL_CTX_load_verify_file(context->ssl, ca) != 1
           : SSL_CTX_set_default_verify_paths(context->ssl) != 1)
        return fail(context, file_error(error, "tls_ca", ca ? ca : "(system)"));
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, NULL);
    *out = context;
    return 0;
}

struct tls_context *
tls_context_ref(struct tls_context *context)
{
    atomic_fetch_add(&context->refs, 1);
    return context;
}

void
tls_context_unref(struct tls_context *context)
{
    if (!context || atomic_fetch_sub(&context->refs, 1) > 1)
        return;
    SSL_CTX_free(context->ssl);
    mem_free(context);
}

/* ---- sessions ---- */

static void
set_server_name(SSL *ssl, const char *name)
{
    unsigned char ip[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1) {
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
        return;
    }
    SSL_set_tlsext_host_name(ssl, name);
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    SSL_set1_host(ssl, name);
}

void
tls_offer(struct tls_session *session, const char *protocol)
{
    unsigned char names[1 + sizeof session->alpn];
    size_t len = strlen(protocol);
    check(len < sizeof session->alpn);
    names[0] = (unsigned char)len;
    memcpy(names + 1, protocol, len);
    check(SSL_set_alpn_protos(session->ssl, names, (unsigned)len + 1) == 0);
}

struct tls_session *
tls_session_new(struct tls_context *context, const char *server_name, struct slab *slab)
{
    struct tls_session *session = slab_zalloc(slab, sizeof *session);
    session->context = tls_context_ref(context);
    session->slab = slab;
    outbuf_init(&session->wire, slab);
    session->ssl = SSL_new(context->ssl);
    BIO *bio = BIO_new(bio_method);
    check(session->ssl && bio);
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(session->ssl, bio, bio); /* owned by ssl now */
    if (context->server)
        SSL_set_accept_state(session->ssl);
    else
        SSL_set_connect_state(session->ssl);
    if (!context->server)
        tls_offer(session, "h2");
    if (server_name)
        set_server_name(session->ssl, server_name);
    return session;
}

void
tls_session_free(struct tls_session *session)
{
    if (!session)
        return;
    SSL_free(session->ssl);
    outbuf_clear(&session->wire);
    tls_context_unref(session->context);
    slab_free(session->slab, session);
}

struct outbuf *
tls_wire(struct tls_session *session)
{
    return &session->wire;
}

bool
tls_ready(const struct tls_session *session)
{
    return SSL_is_init_finished(session->ssl);
}

const char *
tls_alpn(struct tls_session *session)
{
    const unsigned char *name;
    unsigned int bytes;
    SSL_get0_alpn_selected(session->ssl, &name, &bytes);
    if (bytes >= sizeof session->alpn)
        bytes = 0; /* not one that we offered */
    memcpy(session->alpn, bytes ? name : (const unsigned char *)"", bytes);
    session->alpn[bytes] = 0;
    return session->alpn;
}

void
tls_feed(struct tls_session *session, const uint8_t *data, size_t len)
{
    check(session->input_bytes == 0);
    session->input = data;
    session->input_bytes = len;
}

/* 0: more is needed; else why it will not go on. */
static int
outcome(struct tls_session *session, int result)
{
    switch (SSL_get_error(session->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return UV_EOF;
    default:
        break;
    }
    session->said_goodbye = true; /* OpenSSL forbids SSL_shutdown after a fatal error */
    unsigned long code = ERR_peek_error();
    ERR_clear_error();
    return ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED ? UV_EACCES : UV_EPROTO;
}

ssize_t
tls_read(struct tls_session *session, uint8_t *into, size_t len)
{
    size_t got;
    ERR_clear_error();
    int result = SSL_read_ex(session->ssl, into, len, &got);
    if (result == 1)
        return (ssize_t)got;
    int error = outcome(session, result);
    session->input_bytes = 0; /* all was used, or nothing more will be */
    return error;
}

int
tls_encrypt(struct tls_session *session, struct outbuf *clear)
{
    if (!tls_ready(session))
        return 0;
    struct slice *front;
    while ((front = slices_front(&clear->slices)) != NULL) {
        size_t written;
        ERR_clear_error();
        int result = SSL_write_ex(session->ssl, front->data, front->len, &written);
        if (result != 1) {
            int error = outcome(session, result);
            return error ? error
                         : UV_EPROTO; /* our BIO takes everything: it cannot want anything */
        }
        outbuf_take(clear, written);
    }
    return 0;
}

void
tls_say_goodbye(struct tls_session *session)
{
    if (session->said_goodbye || !tls_ready(session))
        return;
    session->said_goodbye = true;
    ERR_clear_error();
    SSL_shutdown(session->ssl);
    ERR_clear_error();
}
