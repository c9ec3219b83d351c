package org.tributary.interop;

import java.io.IOException;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import sun.misc.Signal;

/**
 * A dubbo-java Triple provider on loopback: the Echo service (protobuf IDL) three times, plain and as
 * group/version grey/2.0 and /1.1, Greeter, a plain Java interface (hessian2 in wrapper messages), and Users,
 * the four calls of the benchmark suite (protobuf IDL).
 * Prints "READY 127.0.0.1:PORT" and leaves with 0 on SIGTERM. Options: --port N (0 takes a free one).
 */
final class Provider {
    private Provider() {}

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        PrintStream out = System.out;
        System.setOut(System.err);
        int port = options.number("port", 0);
        if (port == 0) {
            port = freePort();
        }

        Counters seen = new Counters();
        DubboBootstrap bootstrap = Peer.bootstrap("interop-provider");
        ProtocolConfig protocol = new ProtocolConfig("tri", port);
        protocol.setHost(Peer.LOOPBACK);
        // One after another, the plain one first: whichever comes first answers on the proto name. And the
        // port opens with the first, before READY: a proxy that reconnects is not to find it without Echo.
        bootstrap.protocol(protocol)
                .service(service(Echo.class, new EchoService(seen, "", ""), "", ""))
                .start();
        service(Echo.class, new EchoService(seen, "grey", "2.0"), "grey", "2.0").export();
        service(Echo.class, new EchoService(seen, "", "1.1"), "", "1.1").export();
        service(Greeter.class, new GreeterService(), "", "").export();
        service(Users.class, new UsersService(), "", "").export();
        Signal.handle(new Signal("TERM"), signal -> System.exit(0));
        out.println("READY 127.0.0.1:" + port);
        out.flush();
        Thread.currentThread().join();
    }

    private static <T> ServiceConfig<T> service(Class<T> type, T implementation, String group, String version) {
        ServiceConfig<T> service = new ServiceConfig<>();
        service.setInterface(type);
        service.setRef(implementation);
        if (!group.isEmpty()) {
            service.setGroup(group);
        }
        if (!version.isEmpty()) {
            service.setVersion(version);
        }
        return service;
    }

    // Dubbo takes port 0 for its default port. Another process may be faster: then start() fails.
    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }
}
