/* TLS contexts of listeners and upstreams, made from the files that the configuration names. */
#ifndef TRIBUTARY_CONFIG_SECURE_H
#define TRIBUTARY_CONFIG_SECURE_H

#include "proxy/config/draft.h"

/* Fills `tls` where TLS is on; snapshot_unref() gives the references back. Only of a draft without
 * complaints. */
void secure(const struct draft *draft);

#endif
