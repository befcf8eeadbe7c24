<%@ page contentType="text/plain;charset=UTF-8" trimDirectiveWhitespaces="true" import="java.util.*" %>
<%-- What the container was told about the request, a line each. --%>
<%
    out.print("method=" + request.getMethod() + "\n");
    out.print("uri=" + request.getRequestURI() + "\n");
    out.print("query=" + request.getQueryString() + "\n");
    out.print("remote=" + request.getRemoteAddr() + ":" + request.getRemotePort() + "\n");
    out.print("server=" + request.getServerName() + ":" + request.getServerPort() + "\n");
    out.print("secure=" + request.isSecure() + "\n");
    for (String name : Collections.list(request.getHeaderNames())) {
        out.print(name + ": " + request.getHeader(name) + "\n");
    }
%>
