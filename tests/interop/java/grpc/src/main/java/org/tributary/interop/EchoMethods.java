package org.tributary.interop;

import com.google.protobuf.Message;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.protobuf.ProtoUtils;

/** The Echo service for grpc-java, described by hand: five methods need no generated stub. */
final class EchoMethods {
    private final String service;

    EchoMethods(String service) {
        this.service = service;
    }

    MethodDescriptor<SayRequest, SayReply> say() {
        return say("Say");
    }

    MethodDescriptor<SayRequest, SayReply> say(String name) {
        return method(name, MethodType.UNARY, SayRequest.getDefaultInstance(), SayReply.getDefaultInstance());
    }

    MethodDescriptor<SayRequest, SayReply> expand() {
        return method("Expand", MethodType.SERVER_STREAMING, SayRequest.getDefaultInstance(),
                SayReply.getDefaultInstance());
    }

    MethodDescriptor<SayRequest, SayReply> collect() {
        return method("Collect", MethodType.CLIENT_STREAMING, SayRequest.getDefaultInstance(),
                SayReply.getDefaultInstance());
    }

    MethodDescriptor<SayRequest, SayReply> chat() {
        return method("Chat", MethodType.BIDI_STREAMING, SayRequest.getDefaultInstance(),
                SayReply.getDefaultInstance());
    }

    MethodDescriptor<CountRequest, CountReply> count() {
        return method("Count", MethodType.UNARY, CountRequest.getDefaultInstance(), CountReply.getDefaultInstance());
    }

    private <Q extends Message, P extends Message> MethodDescriptor<Q, P> method(
            String name, MethodType type, Q request, P reply) {
        return MethodDescriptor.<Q, P>newBuilder()
                .setType(type)
                .setFullMethodName(MethodDescriptor.generateFullMethodName(service, name))
                .setRequestMarshaller(ProtoUtils.marshaller(request))
                .setResponseMarshaller(ProtoUtils.marshaller(reply))
                .build();
    }
}
