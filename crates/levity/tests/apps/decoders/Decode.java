import com.github.luben.zstd.ZstdInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.zip.CRC32;
import java.util.zip.GZIPInputStream;

/**
 * Decodes responses as they arrive: {@code Decode HOST PORT CODING FIRST COUNT}. Prints the number of the responses
 * whose content has the sum that their header announces.
 */
public class Decode {
    static final HttpClient CLIENT =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    static InputStream decoder(String coding, InputStream body) throws IOException {
        return coding.equals("gzip") ? new GZIPInputStream(body) : new ZstdInputStream(body);
    }

    static void check(String coding, String uri) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(uri)).header("Accept-Encoding", coding);
        var response = CLIENT.send(request.build(), HttpResponse.BodyHandlers.ofInputStream());
        var headers = response.headers();
        if (response.statusCode() != 200
                || !headers.firstValue("Content-Encoding").orElse("").equals(coding)) {
            throw new IOException(uri + ": " + response.statusCode() + " " + headers.map());
        }
        var sum = new CRC32();
        try (var content = decoder(coding, response.body())) {
            var piece = new byte[65536];
            for (int count; (count = content.read(piece)) >= 0; ) {
                sum.update(piece, 0, count);
            }
        }
        var expected = headers.firstValue("X-Sum").orElse("");
        if (!String.format("%08x", sum.getValue()).equals(expected)) {
            throw new IOException(uri + ": another sum");
        }
    }

    public static void main(String[] words) throws Exception {
        var first = Integer.parseInt(words[3]);
        var count = Integer.parseInt(words[4]);
        for (int number = first; number < first + count; number++) {
            check(words[2], "http://" + words[0] + ":" + words[1] + "/" + words[2] + "/" + number);
        }
        System.out.println(count);
    }
}
