/* Keys and certificates made for one test run, as PEM files in a directory of their own. */
#ifndef TESTS_TLS_FILES_H
#define TESTS_TLS_FILES_H

struct tls_files {
    char directory[64];
    char ca[96], other_ca[96];                /* certificates */
    char server_cert[96], server_key[96];     /* for provider.test and 127.0.0.1, signed by ca */
    char client_cert[96], client_key[96];     /* signed by ca */
    char locked_key[96];                      /* server_key behind a passphrase */
    char stranger_cert[96], stranger_key[96]; /* signed by other_ca */
};

void tls_files_make(struct tls_files *files);
void tls_files_remove(struct tls_files *files);

#endif
