package echotri

import "dubbo.apache.org/dubbo-go/v3/client"

// ClientInfo tells dubbo-go's framework client which methods the service has.
var ClientInfo = client.ClientInfo{
	InterfaceName: Name,
	MethodNames:   []string{"Say", "Expand", "Collect", "Chat", "Count"},
}
