/*
 * TLS for connections (OpenSSL): contexts, which snapshots hold by reference, and the session of
 * one connection.
 *
 * A session turns ciphertext that was read into clear bytes and clear bytes of a write queue into
 * ciphertext of its own queue (tls_wire), which conn_write.c hands to the kernel. It never touches
 * a socket. TLS 1.2 and 1.3; by ALPN servers take h2 and http/1.1, clients offer what they are
 * going to speak. Nothing of OpenSSL is initialised before the first context is made.
 *
 * Failure modes: files that cannot be used, at context creation, with the file's name in the text;
 * a failed handshake or record comes as a negative errno from tls_read() (UV_EPROTO; UV_EACCES when
 * the peer's certificate was not accepted).
 */
#ifndef TRIBUTARY_NET_TLS_H
#define TRIBUTARY_NET_TLS_H

#include <sys/types.h>

#include "proxy/base/strbuf.h"
#include "proxy/net/outbuf.h"

struct tls_context;
struct tls_session;

/*
 * 0 and *context with one reference; or a negative errno, *context NULL and what is wrong, for the
 * operator, in *error
 * ("tls_cert /etc/x.pem: No such file or directory"). Paths are PEM files; NULL where not wanted.
 * Server: cert (chain) and key; client_ca: clients must present a certificate that it signed.
 */
int tls_context_server(const char *cert, const char *key, const char *client_ca,
                       struct tls_context **context, struct strbuf *error);
/* Client: ca NULL: the system's. cert and key: for servers that ask for them. */
int tls_context_client(const char *ca, const char *cert, const char *key,
                       struct tls_context **context, struct strbuf *error);
struct tls_context *tls_context_ref(struct tls_context *context); /* any thread */
/* any thread; NULL is allowed */
void tls_context_unref(struct tls_context *context);

/* The session holds a reference to its context. server_name: client: what the certificate must be
 * for and what SNI says (an IP address is matched as one, without SNI); NULL: the certificate's
 * name is not checked. */
struct tls_session *
tls_session_new(struct tls_context *context, const char *server_name, struct slab *slab);
void tls_session_free(struct tls_session *session);   /* NULL is allowed */
struct outbuf *tls_wire(struct tls_session *session); /* ciphertext for the socket */
/* Client, before the handshake: the one protocol to offer by ALPN ("h2" unless this is called). */
void tls_offer(struct tls_session *session, const char *protocol);
bool tls_ready(const struct tls_session *session); /* handshake done */
const char *tls_alpn(struct tls_session *session); /* "h2", "http/1.1" or "" */
/* Ciphertext that was read; the bytes must stay until tls_read() returned 0 or less. */
void tls_feed(struct tls_session *session, const uint8_t *data, size_t len);
/* Handshakes, and gives clear bytes of what was fed: > 0 bytes; 0: needs more; UV_EOF: the peer is
 * done; else an error. */
ssize_t tls_read(struct tls_session *session, uint8_t *into, size_t len);
/* Encrypts everything in `clear` (taken from it) once the handshake is done. 0 or a negative errno.
 */
int tls_encrypt(struct tls_session *session, struct outbuf *clear);
void tls_say_goodbye(struct tls_session *session); /* close_notify into the wire queue */

#endif
