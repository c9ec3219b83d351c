package org.tributary.interop;

import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;

/** What provider and consumer share: Dubbo without registry, QoS server, metadata service or log lines. */
final class Peer {
    /**
     * 127.0.0.1 as one decimal number. Dubbo rewrites 127.* and localhost to an address of the
     * machine's other interfaces, on both sides, and has no switch against it.
     */
    static final String LOOPBACK = "2130706433";

    private Peer() {}

    static DubboBootstrap bootstrap(String name) {
        System.setProperty("dubbo.application.logger", "jdk");
        System.setProperty("dubbo.service.shutdown.wait", "100");
        ApplicationConfig application = new ApplicationConfig(name);
        application.setQosEnable(false);
        application.setRegisterConsumer(false);
        return DubboBootstrap.getInstance()
                .application(application)
                .registry(new RegistryConfig("N/A"));
    }
}
