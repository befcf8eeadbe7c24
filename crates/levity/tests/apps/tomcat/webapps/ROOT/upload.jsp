<%@ page contentType="application/json" trimDirectiveWhitespaces="true" import="java.io.*,java.security.*,java.util.*" %>
<%-- What arrived of the body, without holding it in memory. --%>
<%
    MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
    InputStream body = request.getInputStream();
    byte[] piece = new byte[65536];
    long length = 0;
    for (int count; (count = body.read(piece)) > 0; length += count) {
        sha256.update(piece, 0, count);
    }
    String digest = HexFormat.of().formatHex(sha256.digest());
    out.print("{\"length\":" + length + ",\"sha256\":\"" + digest + "\"}");
%>
