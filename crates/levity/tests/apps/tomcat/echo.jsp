<%@ page contentType="text/plain;charset=UTF-8" trimDirectiveWhitespaces="true" import="java.util.*" %>
<%-- What the container was told about the request, a line each. --%>
method=<%= request.getMethod() %>
uri=<%= request.getRequestURI() %>
query=<%= request.getQueryString() %>
remote=<%= request.getRemoteAddr() %>:<%= request.getRemotePort() %>
server=<%= request.getServerName() %>:<%= request.getServerPort() %>
secure=<%= request.isSecure() %>
<% for (String name : Collections.list(request.getHeaderNames())) { %>
<%= name %>: <%= request.getHeader(name) %>
<% } %>
