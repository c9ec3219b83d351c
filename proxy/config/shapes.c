/* Checks of texts. The address grammar itself is net/address.c's; here it gets words. */
#include "proxy/config/shapes.h"

#include "proxy/net/address.h"

enum { PACKAGE_DEPTH_MAX = 32 }; /* dots in "/a.b.*": routes.c looks at no more */

static bool
is_token(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           (byte != '\0' && strchr("!#$%&'*+-.^_`|~", byte));
}

bool
shapes_field_name(struct text name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!is_token(name.ptr[i]))
            return false;
    return name.len > 0;
}

bool
shapes_field_value(struct text value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] != '\t' && (value.ptr[i] < ' ' || value.ptr[i] > '~'))
            return false;
    return true;
}

/* address_parse() reads ports as numbers; here "080" is a mistake. */
static bool
port_has_leading_zero(struct text address)
{
    for (size_t i = address.len; i-- > 0;)
        if (address.ptr[i] == ':')
            return i + 2 < address.len && address.ptr[i + 1] == '0';
    return false;
}

static enum address_kind
kind_of(struct text address, bool allow_zero_port, uint16_t *port)
{
    struct text host;
    enum address_kind kind = address_parse(address, allow_zero_port, &host, port);
    if (kind != ADDRESS_UNIX && port_has_leading_zero(address))
        return ADDRESS_BAD;
    return kind;
}

const char *
shapes_listen(struct text address)
{
    uint16_t port;
    switch (kind_of(address, true, &port)) {
    case ADDRESS_IP:
    case ADDRESS_UNIX:
        return NULL;
    case ADDRESS_NAME:
        return "is a name; listening needs an IP address, such as 127.0.0.1:17000";
    case ADDRESS_BAD:
        break;
    }
    if (address.len && address.ptr[0] == ':')
        return "has no host; write 0.0.0.0:PORT for every interface, 127.0.0.1:PORT for this "
               "machine";
    return "is no address; write 127.0.0.1:17000, [::1]:17000 or unix:/path, ports up to 65535";
}

const char *
shapes_endpoint(struct text address)
{
    uint16_t port;
    if (kind_of(address, false, &port) != ADDRESS_BAD)
        return NULL;
    return "is no address; write 127.0.0.1:20000, [::1]:20000, name:20000 or unix:/path, ports 1 "
           "to "
           "65535";
}

static bool
visible(struct text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~')
            return false;
    return true;
}

static unsigned
count_of(struct text text, char byte)
{
    unsigned count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += text.ptr[i] == byte;
    return count;
}

const char *
shapes_match(struct text match)
{
    static const char FORMS[] =
        "matches nothing; write an exact path /Service/Method, /Service/*, /package.* or *";
    if (text_eq(match, TEXT("*")))
        return NULL;
    if (match.len < 2 || match.ptr[0] != '/' || !visible(match) || count_of(match, '?'))
        return FORMS;
    unsigned stars = count_of(match, '*');
    if (stars == 0)
        return NULL;
    if (stars > 1 || match.ptr[match.len - 1] != '*')
        return FORMS;
    struct text before = text_make(match.ptr + 1, match.len - 2);
    if (text_ends(before, TEXT("/")) && before.len > 1)
        return NULL;
    if (!text_ends(before, TEXT(".")) || before.len < 2 || count_of(before, '/'))
        return FORMS;
    return count_of(before, '.') > PACKAGE_DEPTH_MAX ? "has more than 32 dots; shorten it" : NULL;
}

const char *
shapes_authority(struct text authority)
{
    struct text rest = text_starts(authority, TEXT("*.")) ? text_from(authority, 2) : authority;
    if (rest.len == 0 || !visible(rest) || count_of(rest, '*') || count_of(rest, '/') ||
        count_of(rest, ','))
        return "is no authority; write greet.example.com, greet.example.com:8080 or *.example.com";
    return NULL;
}

const char *
shapes_service(struct text service)
{
    if (!visible(service) || count_of(service, '/') || count_of(service, '?') ||
        count_of(service, '*'))
        return "is no service name; write for example org.example.GreetService";
    return NULL;
}

/* What the codecs write themselves, or must not pass on: RFC 9113 section 8.2.2, gRPC and Triple.
 */
static const char *const OWNED[] = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "te",
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "trailer",
    "expect",
    "accept-encoding",
    "tri-service-group",
    "tri-service-version",
    "triple-protocol-version",
    "triple-timeout-ms",
    "connect-protocol-version",
    "connect-timeout-ms",
};

const char *
shapes_settable(struct text name)
{
    if (text_eq(name, TEXT("tri-service-group")))
        return "has its own key; use set_group";
    if (text_eq(name, TEXT("tri-service-version")))
        return "has its own key; use set_version";
    if (text_starts(name, TEXT("grpc-")) && !text_ends(name, TEXT("-bin")))
        return "belongs to the protocol; the proxy sets it where it is needed";
    for (unsigned i = 0; i < sizeof(OWNED) / sizeof(*OWNED); i++)
        if (text_eq(name, text_of(OWNED[i])))
            return "belongs to the protocol; the proxy sets it where it is needed";
    return NULL;
}

bool
shapes_is_loopback(struct text address)
{
    struct address parsed;
    return address_from_text(address, true, &parsed) == 0 && address_is_loopback(&parsed);
}

bool
shapes_port_zero(struct text address)
{
    return !text_starts(address, TEXT("unix:")) && text_ends(address, TEXT(":0"));
}
