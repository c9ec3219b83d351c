/*
 * What texts of a configuration must look like: addresses, header names and values, matches. Pure
 * functions; each answers with the problem, worded to stand behind the quoted value ("is not …;
 * write …"), or NULL when there is none.
 */
#ifndef TRIBUTARY_CONFIG_SHAPES_H
#define TRIBUTARY_CONFIG_SHAPES_H

#include "proxy/base/text.h"

bool shapes_field_name(
    struct text name); /* a token in lower case, RFC 9110 section 5.1, RFC 9113 section 8.2.1 */
bool shapes_field_value(struct text value); /* printable ASCII, blanks inside; may be empty */
const char *
shapes_listen(struct text address); /* an IP address or unix path; port 0 = any free one */
const char *
shapes_endpoint(struct text address); /* the same, or a name; a port that can be dialled */
const char *shapes_match(
    struct text match); /* exact path, "/Service/ *" (without the blank), "/package.*", "*" */
const char *
shapes_authority(struct text authority);         /* host, host:port, [v6], [v6]:port, "*.domain" */
const char *shapes_service(struct text service); /* a service name for :path, without slashes */
const char *
shapes_settable(struct text name); /* a header that set_header may set: not one the proxy owns */
bool
shapes_is_loopback(struct text address); /* of a valid listen address; unix sockets count as such */
bool shapes_port_zero(struct text address); /* whether it says port 0 */

#endif
