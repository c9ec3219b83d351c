/* See tls_files.h. P-256 keys: made in a millisecond. */
#include "tls_files.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proxy/base/check.h"

static void
add_extension(X509 *cert, int kind, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);
    check(extension && X509_add_ext(cert, extension, -1));
    X509_EXTENSION_free(extension);
}

/* Signed by `issuer` (NULL: itself, as a CA). */
static X509 *
make_cert(EVP_PKEY *key, const char *name, const char *alternatives, X509 *issuer,
          EVP_PKEY *issuer_key)
{
    static long serial = 1;
    X509 *cert = X509_new();
    check(cert && X509_set_version(cert, X509_VERSION_3));
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 24 * 3600);
    X509_set_pubkey(cert, key);
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, issuer ? X509_get_subject_name(issuer) : subject);
    if (!issuer)
        add_extension(cert, NID_basic_constraints, "critical,CA:TRUE");
    if (alternatives)
        add_extension(cert, NID_subject_alt_name, alternatives);
    check(X509_sign(cert, issuer ? issuer_key : key, EVP_sha256()));
    return cert;
}

static void
write_pem(char *path, size_t bytes, const char *directory, const char *name, X509 *cert,
          EVP_PKEY *key)
{
    snprintf(path, bytes, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    check(file);
    check(cert ? PEM_write_X509(file, cert)
               : PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL));
    fclose(file);
}

void
tls_files_make(struct tls_files *files)
{
    snprintf(files->directory, sizeof files->directory, "/tmp/tributary-tls-XXXXXX");
    check(mkdtemp(files->directory));
    EVP_PKEY *keys[5];
    for (unsigned i = 0; i < 5; i++)
        check((keys[i] = EVP_EC_gen("P-256")));
    X509 *ca = make_cert(keys[0], "test CA", NULL, NULL, NULL);
    X509 *other = make_cert(keys[1], "other CA", NULL, NULL, NULL);
    X509 *server = make_cert(keys[2], "provider", "DNS:provider.test,IP:127.0.0.1", ca, keys[0]);
    X509 *client = make_cert(keys[3], "client", NULL, ca, keys[0]);
    X509 *stranger = make_cert(keys[4], "stranger", "DNS:provider.test", other, keys[1]);
#define FILE_OF(member, cert, key)                                                                 \
    write_pem(files->member, sizeof files->member, files->directory, #member ".pem", cert, key)
    FILE_OF(ca, ca, NULL);
    FILE_OF(other_ca, other, NULL);
    FILE_OF(server_cert, server, NULL);
    FILE_OF(server_key, NULL, keys[2]);
    FILE_OF(client_cert, client, NULL);
    FILE_OF(client_key, NULL, keys[3]);
    FILE_OF(stranger_cert, stranger, NULL);
    FILE_OF(stranger_key, NULL, keys[4]);
#undef FILE_OF
    snprintf(files->locked_key, sizeof files->locked_key, "%s/locked_key.pem", files->directory);
    FILE *locked = fopen(files->locked_key, "w");
    check(locked && PEM_write_PrivateKey(locked, keys[2], EVP_aes_128_cbc(),
                                         (const unsigned char *)"pass", 4, NULL, NULL));
    fclose(locked);
    for (unsigned i = 0; i < 5; i++)
        EVP_PKEY_free(keys[i]);
    X509_free(ca);
    X509_free(other);
    X509_free(server);
    X509_free(client);
    X509_free(stranger);
}

void
tls_files_remove(struct tls_files *files)
{
    const char *paths[] = {files->ca,         files->other_ca,      files->server_cert,
                           files->server_key, files->client_cert,   files->client_key,
                           files->locked_key, files->stranger_cert, files->stranger_key};
    for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++)
        unlink(paths[i]);
    rmdir(files->directory);
}
