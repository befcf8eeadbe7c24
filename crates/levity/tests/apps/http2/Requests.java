import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.util.HexFormat;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Sends requests to a server: {@code Requests BASE AUTHORITY}. Prints a line for each response: the version, the status, and the
 * SHA-256 of the body. At the end come many requests at the same time, and the number of those that had a whole body.
 */
public class Requests {
    static final int MANY = 100;

    static HttpClient client(Path authority) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(authority)) {
            var certificate = CertificateFactory.getInstance("X.509").generateCertificate(pem);
            store.setCertificateEntry("authority", certificate);
        }
        var factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return HttpClient.newBuilder().sslContext(context).build();
    }

    static HttpRequest.Builder request(String base, String path) {
        return HttpRequest.newBuilder(URI.create(base + path));
    }

    static HttpResponse<byte[]> send(HttpClient client, HttpRequest.Builder request) throws Exception {
        var response = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
        byte[] sum = MessageDigest.getInstance("SHA-256").digest(response.body());
        System.out.println(response.version() + " " + response.statusCode() + " " + HexFormat.of().formatHex(sum));
        return response;
    }

    public static void main(String[] words) throws Exception {
        String base = words[0];
        HttpClient client = client(Path.of(words[1]));
        var whole = send(client, request(base, "/large"));
        send(client, request(base, "/echo").POST(BodyPublishers.ofByteArray(whole.body())));
        send(client, request(base, "/large").header("Range", "bytes=1000000-1999999"));
        send(client, request(base, "/large").method("HEAD", BodyPublishers.noBody()));
        String tag = whole.headers().firstValue("etag").get();
        send(client, request(base, "/large").header("If-None-Match", tag));
        var many = Stream.generate(() -> request(base, "/small").build()).limit(MANY);
        var sent = many.map(one -> client.sendAsync(one, HttpResponse.BodyHandlers.ofByteArray())).toList();
        System.out.println(sent.stream().map(CompletableFuture::join).filter(one -> one.body().length == 300).count());
    }
}
