/* TLS keys: which belong together, and that certificates are read when the configuration is. */
#include "tests/unit/config_test.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

static char cert_path[512], key_path[512], other_key_path[512], text_path[512];

static EVP_PKEY *
write_key(const char *name, char *path)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    assert_non_null(key);
    strcpy(path, config_test_file(name, "", 0));
    FILE *file = fopen(path, "w");
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    return key;
}

static int
make_files(void **state)
{
    (void)state;
    EVP_PKEY *key = write_key("key.pem", key_path);
    EVP_PKEY_free(write_key("other.pem", other_key_path));
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    X509_set_pubkey(cert, key);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    strcpy(cert_path, config_test_file("cert.pem", "", 0));
    FILE *file = fopen(cert_path, "w");
    assert_int_equal(PEM_write_X509(file, cert), 1);
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
    strcpy(text_path, config_test_file("no.pem", "no certificate\n", 15));
    return 0;
}

static char config[4096];

/* The format's arguments are paths. */
__attribute__((format(printf, 1, 2))) static const char *
text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(config, sizeof(config), format, args);
    va_end(args);
    return config;
}

static void
contexts_are_made_where_tls_is_on(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load(text(
        "[listener a]\naddress = 127.0.0.1:1\ntls_cert = %s\ntls_key = %s\ntls_client_ca = %s\n"
        "[upstream u]\nendpoints = a:1\ntls = on\ntls_ca = %s\ntls_server_name = test\n"
        "[upstream v]\nendpoints = a:1\n",
        cert_path, key_path, cert_path, cert_path));
    assert_non_null(snapshot->listeners[0].tls);
    assert_non_null(snapshot->upstreams[0].tls);
    assert_null(snapshot->upstreams[1].tls);
    snapshot_unref(snapshot);
}

static void
a_certificate_needs_its_key(void **state)
{
    (void)state;
    expect_error(text("[listener a]\naddress = 127.0.0.1:1\ntls_cert = %s\n", cert_path),
                 "t.ini:3: [listener a] tls_cert: needs tls_key, the file of its key\n");
    expect_error(text("[listener a]\naddress = 127.0.0.1:1\ntls_key = %s\n", key_path),
                 "t.ini:3: [listener a] tls_key: needs tls_cert, the file of its certificate\n");
    expect_error(
        text("[listener a]\naddress = 127.0.0.1:1\ntls_client_ca = %s\n", cert_path),
        "tls_client_ca: needs tls_cert and tls_key; without them this listener speaks no TLS\n");
}

static void
keys_of_tls_without_tls_are_a_mistake(void **state)
{
    (void)state;
    expect_error(
        LISTENER_MAIN UPSTREAM_GREETER "tls_server_name = x\n",
        "t.ini:5: [upstream greeter] tls_server_name: has no effect without tls = on; add that\n");
}

static void
files_that_cannot_be_read_are_told_with_the_reason(void **state)
{
    (void)state;
    expect_error(
        LISTENER_MAIN UPSTREAM_GREETER "tls = on\ntls_ca = /nonexistent/ca.pem\n",
        "t.ini:6: [upstream greeter] tls_ca: '/nonexistent/ca.pem' cannot be read: No such file or "
        "directory; name a PEM file\n");
    expect_error(LISTENER_MAIN UPSTREAM_GREETER "tls = on\ntls_ca = /dev/zero\n",
                 "'/dev/zero' cannot be read: not a regular file; name a PEM file\n");
}

static void
what_is_in_the_files_is_checked(void **state)
{
    (void)state;
    expect_error(text("[listener a]\naddress = 127.0.0.1:1\ntls_cert = %s\ntls_key = %s\n",
                      cert_path, other_key_path),
                 "t.ini:3: [listener a] tls_cert: ");
    expect_error(text("[listener a]\naddress = 127.0.0.1:1\ntls_cert = %s\ntls_key = %s\n",
                      text_path, key_path),
                 "t.ini:3: [listener a] tls_cert: ");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_are_made_where_tls_is_on),
        cmocka_unit_test(a_certificate_needs_its_key),
        cmocka_unit_test(keys_of_tls_without_tls_are_a_mistake),
        cmocka_unit_test(files_that_cannot_be_read_are_told_with_the_reason),
        cmocka_unit_test(what_is_in_the_files_is_checked),
    };
    return cmocka_run_group_tests(tests, make_files, NULL);
}
