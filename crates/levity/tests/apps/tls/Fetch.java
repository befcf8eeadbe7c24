import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.util.HexFormat;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;

/**
 * Gets files of {@code a.test} at a port: {@code Fetch PORT AUTHORITY PATH...}. Prints a line per version of TLS: the
 * version, and the SHA-256 of each file. The library does not say whether it has resumed a session.
 */
public class Fetch {
    /** A context that trusts one authority. */
    static SSLContext trusting(Path authority) throws Exception {
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
        return context;
    }

    static void fetch(SSLContext context, String version, String[] words) throws Exception {
        var parameters = new SSLParameters();
        parameters.setProtocols(new String[] {version});
        var client = HttpClient.newBuilder().sslContext(context).sslParameters(parameters).build();
        String line = version;
        for (int number = 2; number < words.length; number++) {
            URI uri = URI.create("https://a.test:" + words[0] + words[number]);
            var request = HttpRequest.newBuilder(uri).build();
            var response = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            String used = response.sslSession().get().getProtocol();
            if (response.statusCode() != 200 || !used.equals(version)) {
                throw new IllegalStateException(uri + ": " + response.statusCode() + ", " + used);
            }
            byte[] sum = MessageDigest.getInstance("SHA-256").digest(response.body());
            line += " " + HexFormat.of().formatHex(sum);
        }
        System.out.println(line);
    }

    public static void main(String[] words) throws Exception {
        SSLContext context = trusting(Path.of(words[1]));
        fetch(context, "TLSv1.2", words);
        fetch(context, "TLSv1.3", words);
    }
}
