# A Rack application for puma: /file?path=FILE leaves the file to a server that says X-Sendfile-Type.

require 'digest'
require 'json'
require 'rack'
require 'rack/sendfile'

JSON_TYPE = { 'Content-Type' => 'application/json' }.freeze

# What the server was told about the request.
def echo(env)
  told = env.select { |_, value| value.is_a?(String) }
  [200, JSON_TYPE.dup, [told.to_json]]
end

# What arrived of the body, without holding it in memory.
def upload(env)
  length = 0
  sha256 = Digest::SHA256.new
  while (piece = env['rack.input'].read(65_536))
    length += piece.bytesize
    sha256 << piece
  end
  [200, JSON_TYPE.dup, [{ length: length, sha256: sha256.hexdigest }.to_json]]
end

# Rack reads X-Sendfile-Type no longer by itself: an application has to be told whom it stands behind.
def file(env)
  type = env['HTTP_X_SENDFILE_TYPE']
  files = lambda do |inner|
    request = Rack::Request.new(inner)
    Rack::Files.new(nil).serving(request, request.params['path'])
  end
  status, headers, body = Rack::Sendfile.new(files, type).call(env)
  headers['X-Kept-Type'] = type.to_s
  [status, headers, body]
end

run lambda { |env|
  case env['PATH_INFO']
  when '/file' then file(env)
  when '/upload' then upload(env)
  else echo(env)
  end
}
